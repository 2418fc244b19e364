//! How large the files of an embedded store are.

use std::path::Path;

use super::Finding;
use super::folder::Place;

/// The database and its log. `None` where there is no file yet.
pub(super) fn of_folder(place: &Place) -> Option<Finding> {
    let files = if place.named.is_dir() { files_in(&place.named) } else { of_file(&place.named) };
    let all: u64 = files.iter().map(|(_, bytes)| bytes).sum();
    if files.is_empty() {
        return None;
    }
    let each = files.iter().map(|(name, bytes)| format!("{name} {}", in_words(*bytes))).collect::<Vec<_>>().join(", ");
    Some(Finding::ok("size", format!("{}: {each}", in_words(all))))
}

fn files_in(folder: &Path) -> Vec<(String, u64)> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| {
        let found = entry.metadata().ok().filter(std::fs::Metadata::is_file)?;
        Some((entry.file_name().to_string_lossy().into_owned(), found.len()))
    });
    let mut files: Vec<(String, u64)> = files.filter(|(_, bytes)| *bytes > 0).collect();
    files.sort_unstable();
    files
}

fn of_file(file: &Path) -> Vec<(String, u64)> {
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let beside = |end: &str| {
        let path = file.with_file_name(format!("{name}{end}"));
        std::fs::metadata(path).ok().map(|found| (format!("{name}{end}"), found.len()))
    };
    ["", "-wal", "-shm"].into_iter().filter_map(beside).collect()
}

fn in_words(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} bytes"),
        1_024..1_048_576 => format!("{} KiB", bytes / 1_024),
        _ => format!("{} MiB", bytes / 1_048_576),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_and_its_log_are_counted_in_a_folder_and_beside_a_file() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("orders.db");
        let place = |path: &Path| Place::of_store(&format!("sqlite:{}", path.display())).unwrap();
        assert!(of_folder(&place(&file)).is_none());
        std::fs::write(&file, [0_u8; 2_048]).unwrap();
        std::fs::write(scratch.path().join("orders.db-wal"), [0_u8; 100]).unwrap();
        for path in [file.as_path(), scratch.path()] {
            let found = of_folder(&place(path)).unwrap();
            assert_eq!(found.message, "2 KiB: orders.db 2 KiB, orders.db-wal 100 bytes");
        }
    }
}
