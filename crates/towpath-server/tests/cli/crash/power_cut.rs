//! The power goes out: what the disk itself holds at that moment must contain everything that was acknowledged before.
//!
//! The server writes to an ext4 file system inside an image. What is not synced stays in the page cache and never reaches the image, so a copy of
//! the image, taken while the server stands still, is the disk after a power cut. The copy is mounted and a new server opened on it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use nix::sys::signal::Signal;
use serde_json::json;

use super::Caller;
use crate::support::{Server, wait_for};

const CUTS: usize = 3;
const CALLERS: usize = 8;
/// Enough acknowledgements before each cut for a lost sync to show.
const ACKNOWLEDGED_BETWEEN_CUTS: usize = 150;

fn system(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(status.success(), "{program} {arguments:?} failed: run the tests as root");
}

/// An ext4 file system in an image, mounted while this lives.
struct Disk {
    image: PathBuf,
    mounted_at: tempfile::TempDir,
}

impl Disk {
    fn make(image: PathBuf) -> Self {
        std::fs::File::create(&image).unwrap().set_len(64 * 1024 * 1024).unwrap();
        system("mkfs.ext4", &["-q", "-F", image.to_str().unwrap()]);
        Self::mount(image)
    }

    fn mount(image: PathBuf) -> Self {
        let mounted_at = tempfile::tempdir().unwrap();
        system("mount", &["-o", "loop", image.to_str().unwrap(), mounted_at.path().to_str().unwrap()]);
        Self { image, mounted_at }
    }

    /// The disk as it is now, synced or not.
    fn copy_to(&self, image: PathBuf) -> PathBuf {
        std::fs::copy(&self.image, &image).unwrap();
        image
    }

    fn data(&self) -> PathBuf {
        self.mounted_at.path().join("data")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _left_to_the_system = Command::new("umount").arg("--lazy").arg(self.mounted_at.path()).status();
    }
}

fn serve(data: &Path) -> Server {
    Server::start_with(tempfile::tempdir().unwrap(), &["dev", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()])
}

#[test]
fn what_was_acknowledged_is_on_the_disk_when_the_power_goes_out() {
    // In memory, so that copying the image is quick. What matters is what has left the page cache of the file system inside.
    let images = tempfile::tempdir_in("/dev/shm").unwrap();
    let disk = Disk::make(images.path().join("disk"));
    let server = serve(&disk.data());
    let acknowledged: Arc<Mutex<Vec<String>>> = Arc::default();
    let stop = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (url, acknowledged, stop) = (server.url.clone(), Arc::clone(&acknowledged), Arc::clone(&stop));
            std::thread::spawn(move || call_until(&stop, &url, caller, &acknowledged))
        })
        .collect();

    let mut copies = Vec::new();
    for cut in 0..CUTS {
        wait_for("acknowledgements", || (acknowledged.lock().unwrap().len() >= (cut + 1) * ACKNOWLEDGED_BETWEEN_CUTS).then_some(()));
        let before_the_cut = acknowledged.lock().unwrap().clone();
        server.process.signal(Signal::SIGSTOP);
        copies.push((before_the_cut, disk.copy_to(images.path().join(format!("cut-{cut}")))));
        server.process.signal(Signal::SIGCONT);
    }
    stop.store(true, Ordering::Relaxed);
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    drop(server);

    for (before_the_cut, image) in copies {
        let disk = Disk::mount(image);
        let server = serve(&disk.data());
        let caller = Caller::new();
        for id in &before_the_cut {
            let (status, call) = caller.get(&server.url, &format!("/v1/calls/{id}")).expect("the server answers");
            assert_eq!(status, 200, "{id} was acknowledged before the power went out and is gone: {call}");
        }
    }
}

fn call_until(stop: &AtomicBool, url: &str, caller: usize, acknowledged: &Mutex<Vec<String>>) {
    let http = Caller::new();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let id = format!("caller-{caller}-call-{number}");
        let answer = http.try_submit(url, "hello", &id, &json!({ "name": "you" }));
        assert!(matches!(answer, Some((202, _))), "{answer:?}");
        acknowledged.lock().unwrap().push(id);
    }
}
