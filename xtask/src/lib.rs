//! Reads the repository as text, for the checks in `tests/`. Each check says how to fix what it found, or how to record an exception.

use std::fs;
use std::path::{Path, PathBuf};

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the repository").to_owned()
}

/// A file of the repository.
pub struct SourceFile {
    /// Its path from the root, with forward slashes.
    pub path: String,
    /// What is in it.
    pub text: String,
}

/// Every file below `crates` and `xtask` whose name ends so, build output left out.
pub fn source_files(ending: &str) -> Vec<SourceFile> {
    let root = root();
    let mut files = Vec::new();
    for folder in ["crates", "xtask"] {
        collect(&root, &root.join(folder), ending, &mut files);
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

fn collect(root: &Path, folder: &Path, ending: &str, files: &mut Vec<SourceFile>) {
    let entries = fs::read_dir(folder).expect("a folder of the repository can be read");
    for path in entries.map(|entry| entry.expect("an entry of the repository can be read").path()) {
        if path.is_dir() && !path.ends_with("target") {
            collect(root, &path, ending, files);
        } else if path.to_string_lossy().ends_with(ending) {
            let text = fs::read_to_string(&path).expect("a source file is text");
            let path = path.strip_prefix(root).expect("it was found below the root").to_string_lossy().replace('\\', "/");
            files.push(SourceFile { path, text });
        }
    }
}

/// Holds a generated part of a document against what it should be. With `TOWPATH_BLESS` set it is written instead.
pub fn check_generated(document: &str, marker: &str, expected: &str) -> Result<(), String> {
    let path = root().join(document);
    let text = fs::read_to_string(&path).map_err(|cause| format!("{document}: {cause}"))?;
    let (begin, end) = (format!("<!-- {marker} -->\n"), format!("<!-- end of {marker} -->"));
    let from = text.find(&begin).ok_or(format!("{document} has no line {begin}"))? + begin.len();
    let to = text.find(&end).ok_or(format!("{document} has no line {end}"))?;
    if text[from..to] == *expected {
        return Ok(());
    }
    if std::env::var_os("TOWPATH_BLESS").is_none() {
        return Err(format!("{document}: the part '{marker}' is not what the code says; run ./fix"));
    }
    let rewritten = format!("{}{expected}{}", &text[..from], &text[to..]);
    fs::write(&path, rewritten).map_err(|cause| format!("{document}: {cause}"))
}
