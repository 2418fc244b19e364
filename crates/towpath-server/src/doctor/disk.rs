//! The disk below the data folder: its file system, its free space, and how long it takes to keep something.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::statvfs::statvfs;
use towpath::{Ids, SystemIds};

use super::Finding;

const MIB: u64 = 1024 * 1024;
/// With less than this the store soon refuses work.
const FREE_BYTES_MIN: u64 = 64 * MIB;
const FREE_PERCENT_MIN: u64 = 5;
/// How often the disk is asked to keep something.
const WRITES: usize = 200;
/// A slower disk makes every accepted call wait.
const SLOW: Duration = Duration::from_millis(50);

/// All checks of the disk that holds `folder`, which exists. Writing is tried only where the data is.
pub(super) fn check(folder: &Path, may_write: bool) -> Vec<Finding> {
    let mut findings = vec![file_system(folder), free_space(folder)];
    if may_write {
        findings.push(write_latency(folder));
    }
    findings
}

fn file_system(folder: &Path) -> Finding {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let kind = folder.canonicalize().ok().and_then(|folder| kind_of(&mounts, &folder));
    let local = "keep the data folder on a local disk";
    match kind.as_deref() {
        None => Finding::info("file system", "its kind cannot be told on this system", "make sure that it is a local disk"),
        Some(kind) if is_remote(kind) => Finding::fail("file system", format!("{kind}, where locks and fsync cannot be relied on"), local),
        Some("tmpfs" | "ramfs") => Finding::warn("file system", "in memory: everything is gone after a reboot", local),
        Some("overlay" | "overlayfs") => {
            let advice = "mount a volume for the data folder; a container's own layer goes away with the container";
            Finding::warn("file system", "a container's layer (overlay)", advice)
        }
        Some(kind) => Finding::ok("file system", kind.to_owned()),
    }
}

fn is_remote(kind: &str) -> bool {
    const REMOTE: [&str; 12] = ["nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "virtiofs"];
    REMOTE.contains(&kind) || kind == "fuse" || kind.starts_with("fuse.")
}

/// The kind of the file system that holds `path`, by the system's table of mounts: the deepest mount counts, of two the later.
fn kind_of(mounts: &str, path: &Path) -> Option<String> {
    let mounted = mounts.lines().filter_map(|line| {
        let (mount, system) = line.split_once(" - ")?;
        let point = unescape(mount.split(' ').nth(4)?);
        let kind = system.split(' ').next()?;
        path.starts_with(&point).then(|| (Path::new(&point).components().count(), kind.to_owned()))
    });
    mounted.max_by_key(|(depth, _)| *depth).map(|(_, kind)| kind)
}

/// The table writes blanks and other odd bytes as `\040`.
fn unescape(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        plain.push_str(before);
        let code = after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        plain.push(code.map_or('\\', char::from));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    plain + rest
}

fn free_space(folder: &Path) -> Finding {
    let found = match statvfs(folder) {
        Ok(found) => found,
        Err(error) => return Finding::warn("free space", format!("it cannot be told: {error}"), "look with `df`"),
    };
    let block = found.fragment_size();
    let (free, all) = (block.saturating_mul(found.blocks_available()), block.saturating_mul(found.blocks()));
    let percent = free.saturating_mul(100).checked_div(all).unwrap_or(100);
    let message = format!("{} MiB, {percent} % of the disk", free / MIB);
    if free < FREE_BYTES_MIN || percent < FREE_PERCENT_MIN {
        let advice = "make room: without it new calls are refused as store_full, and nothing accepted is lost";
        return Finding::warn("free space", message, advice);
    }
    Finding::ok("free space", message)
}

fn write_latency(folder: &Path) -> Finding {
    match measure(folder) {
        Ok(latency) => {
            let message = format!("of {WRITES} writes, 99 % are on disk within {}, half within {}", exact(latency.p99), exact(latency.p50));
            if latency.p99 > SLOW {
                let advice = "each accepted call waits for such a write: use a faster disk, or one that is less busy";
                return Finding::warn("fsync", message, advice);
            }
            Finding::ok("fsync", message)
        }
        Err(error) => Finding::fail(
            "fsync",
            format!("a file in {} cannot be written: {error}", folder.display()),
            "make the folder writable for this user and make sure that there is room",
        ),
    }
}

fn exact(length: Duration) -> String {
    if length < Duration::from_millis(10) {
        format!("{:.2} ms", length.as_secs_f64() * 1_000.0)
    } else {
        format!("{} ms", length.as_millis())
    }
}

struct Latency {
    p50: Duration,
    p99: Duration,
}

fn measure(folder: &Path) -> io::Result<Latency> {
    let path = folder.join(format!(".towpath-doctor-{}", SystemIds::new().call_id()));
    let measured = File::options().write(true).create_new(true).open(&path).and_then(timed_writes);
    let removed = std::fs::remove_file(&path);
    let mut lengths = measured?;
    removed?;
    lengths.sort_unstable();
    Ok(Latency { p50: lengths[lengths.len() / 2], p99: lengths[lengths.len() * 99 / 100] })
}

fn timed_writes(mut file: File) -> io::Result<Vec<Duration>> {
    let block = [7_u8; 512];
    let mut lengths = Vec::with_capacity(WRITES);
    for _ in 0..WRITES {
        let begun = now();
        file.write_all(&block)?;
        file.sync_data()?;
        lengths.push(begun.elapsed());
    }
    Ok(lengths)
}

#[expect(clippy::disallowed_methods, reason = "a disk is measured by the machine's own clock")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 0:25 / /tmp rw - tmpfs tmpfs rw
31 22 0:26 / /mnt/my\\040share rw - nfs4 host:/x rw
32 22 0:27 / /mnt/my\\040share/fast rw - xfs /dev/sdb rw";

    #[test]
    fn the_deepest_mount_tells_the_file_system() {
        let cases =
            [("/srv/data", "ext4"), ("/tmp/x", "tmpfs"), ("/tmpfoo", "ext4"), ("/mnt/my share/a", "nfs4"), ("/mnt/my share/fast", "xfs")];
        for (path, kind) in cases {
            assert_eq!(kind_of(MOUNTS, Path::new(path)).as_deref(), Some(kind), "{path}");
        }
        assert_eq!(kind_of("", Path::new("/srv")), None);
    }

    #[test]
    fn network_file_systems_are_told_from_local_ones() {
        for kind in ["nfs4", "cifs", "9p", "fuse.sshfs", "fuse"] {
            assert!(is_remote(kind), "{kind}");
        }
        for kind in ["ext4", "xfs", "btrfs", "zfs", "fuseblk", "tmpfs"] {
            assert!(!is_remote(kind), "{kind}");
        }
    }

    #[test]
    fn several_may_measure_one_disk_at_once() {
        let scratch = tempfile::tempdir().unwrap();
        let measured = std::thread::scope(|scope| {
            let measuring: Vec<_> = (0..4).map(|_| scope.spawn(|| measure(scratch.path()).map(drop))).collect();
            measuring.into_iter().map(|one| one.join().unwrap()).collect::<io::Result<Vec<()>>>()
        });
        measured.unwrap();
    }

    #[test]
    fn measuring_leaves_no_file_behind() {
        let scratch = tempfile::tempdir().unwrap();
        let latency = measure(scratch.path()).unwrap();
        assert!(latency.p50 <= latency.p99);
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
    }
}
