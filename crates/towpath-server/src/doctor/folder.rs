//! The data folder: is it there, is it ours, and is it private.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use super::Finding;

/// Where the embedded store is, or would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// What the user named: a folder, or a database file.
    pub named: PathBuf,
    /// The folder whose disk matters.
    pub folder: PathBuf,
}

impl Place {
    /// The place of a `sqlite:` URL; `None` for stores that have no folder.
    pub fn of_store(url: &str) -> Option<Self> {
        match url.strip_prefix("sqlite:")? {
            ":memory:" => None,
            path => Some(Self::of_path(Path::new(path.strip_prefix("//").unwrap_or(path)))),
        }
    }

    fn of_path(path: &Path) -> Self {
        let is_file = path.extension().is_some_and(|end| ["db", "sqlite", "sqlite3"].iter().any(|known| end == *known)) && !path.is_dir();
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = if is_file { parent } else { path };
        Self { named: path.to_owned(), folder: folder.to_owned() }
    }

    /// Whether there is anything to look at.
    pub fn exists(&self) -> bool {
        self.named.exists()
    }

    /// The folder, or the nearest one above it that exists: the disk is the same.
    pub fn existing_folder(&self) -> PathBuf {
        let existing = self.folder.ancestors().find(|folder| !folder.as_os_str().is_empty() && folder.is_dir());
        existing.map_or_else(|| PathBuf::from("."), Path::to_owned)
    }
}

/// Existence, owner, mode, symbolic link.
pub(super) fn check(place: &Place) -> Vec<Finding> {
    let shown = place.named.display();
    match place.named.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let message = format!("{shown} does not exist yet");
            vec![Finding::info("folder", message, "`towpath dev` or `towpath serve` makes it; --data names another one")]
        }
        Err(error) => {
            let advice = "run doctor as the user that runs the server";
            vec![Finding::fail("folder", format!("{shown} cannot be looked at: {error}"), advice)]
        }
        Ok(found) if found.is_symlink() => {
            let advice = "name the folder it points to; a link can be turned to another folder while the server runs";
            vec![Finding::fail("folder", format!("{shown} is a symbolic link"), advice)]
        }
        Ok(found) => vec![owner(place, &found), mode(place, &found)],
    }
}

fn owner(place: &Place, found: &Metadata) -> Finding {
    let (shown, us) = (place.named.display(), geteuid());
    match found.uid() {
        uid if uid == us.as_raw() => Finding::ok("owner", format!("{shown} belongs to this user")),
        uid if us.is_root() => {
            Finding::info("owner", format!("{shown} belongs to user {uid}, and this is root"), "run the server as that user, not as root")
        }
        uid => Finding::fail(
            "owner",
            format!("{shown} belongs to user {uid}, and this is user {us}"),
            format!("run the server as user {uid}, or `chown -R {us} {shown}`"),
        ),
    }
}

fn mode(place: &Place, found: &Metadata) -> Finding {
    let (shown, mode) = (place.named.display(), found.permissions().mode() & 0o777);
    if mode & 0o077 == 0 {
        return Finding::ok("mode", format!("{shown} is closed to other users ({mode:04o})"));
    }
    let wanted = if found.is_dir() { "700" } else { "600" };
    let message = format!("{shown} is open to other users ({mode:04o}), and parameters and results are in it");
    let advice = format!("`chmod {wanted} {shown}`");
    if found.is_dir() { Finding::fail("mode", message, advice) } else { Finding::warn("mode", message, advice) }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn a_store_url_names_a_folder_or_a_file_or_neither() {
        let place = |url| Place::of_store(url).map(|place| place.folder.display().to_string());
        assert_eq!(place("sqlite:./.towpath").as_deref(), Some("./.towpath"));
        assert_eq!(place("sqlite:///var/lib/towpath").as_deref(), Some("/var/lib/towpath"));
        assert_eq!(place("sqlite:data/orders.db").as_deref(), Some("data"));
        assert_eq!(place("sqlite:orders.db").as_deref(), Some("."));
        for elsewhere in ["memory:", "sqlite::memory:", "redis://localhost"] {
            assert_eq!(place(elsewhere), None, "{elsewhere}");
        }
    }

    #[test]
    fn an_open_folder_and_a_link_fail_and_a_closed_one_does_not() {
        let scratch = tempfile::tempdir().unwrap();
        let worst = |path: &Path| check(&Place::of_path(path)).into_iter().map(|finding| finding.level).max();
        let folder = scratch.path().join("data");
        assert_eq!(worst(&folder), Some(Level::Info));
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(worst(&folder), Some(Level::Fail));
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(worst(&folder), Some(Level::Ok));
        let link = scratch.path().join("link");
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        assert_eq!(worst(&link), Some(Level::Fail));
    }
}
