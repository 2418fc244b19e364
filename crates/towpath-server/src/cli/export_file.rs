//! The file that `towpath export` writes and `towpath import` reads: lines of JSON, whole or refused. docs/moving.md describes it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use towpath::{Ids, SystemIds};
use towpath_server::http::wire::Json;
use towpath_server::http::wire::calls::AttemptsBeforeBody;
use towpath_server::http::wire::functions::DefineBody;

use super::exit::Exit;
use super::failure::Failure;

/// The number of this format. A reader refuses any other.
pub(crate) const FORMAT: u32 = 1;

/// One line. The first is a header, the last an end; settings stand before calls.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Line {
    /// What this file is.
    TowpathExport(Header),
    /// The shared configuration, with its rate policies.
    Config { value: Json },
    /// A function and all that is known of it.
    Function { name: String, definition: Box<DefineBody> },
    /// The settings of a batcher that are kept for all servers.
    Batcher { name: String, settings: Json },
    /// A call that waits.
    Call(MovedCall),
    /// A call that ran and was left out.
    LeftOut { call_id: String, function_name: String },
    /// A call that was given up.
    DeadLetter(MovedCall),
    /// Nothing comes after it.
    End { lines: u64 },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Header {
    pub(crate) format: u32,
    /// Of the program that wrote it.
    pub(crate) version: String,
    /// Where the calls were.
    pub(crate) from: String,
    /// By that store's clock.
    pub(crate) exported_at: i64,
}

/// What a call is in every store.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MovedCall {
    pub(crate) call_id: String,
    pub(crate) function_name: String,
    pub(crate) scope: String,
    /// By the store's clock.
    pub(crate) deadline: i64,
    pub(crate) params: Json,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) input_item: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) idempotency_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) traceparent: Option<String>,
    /// Its failed attempts and lost workers, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) attempts_before: Option<AttemptsBeforeBody>,
}

/// Writes a file that appears under its name when it is whole.
pub(crate) struct ExportWriter {
    file: BufWriter<File>,
    partial: Partial,
    path: PathBuf,
    lines: u64,
}

/// The name of the file until it is whole, which no other process uses. Dropping it removes the name.
struct Partial(PathBuf);

impl Partial {
    fn beside(path: &Path) -> Self {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}.partial", SystemIds::new().call_id()));
        Self(PathBuf::from(name))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        let _not_there = std::fs::remove_file(&self.0);
    }
}

impl ExportWriter {
    /// Payloads stand in it, so only its owner may read it. A file that is there is not overwritten.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        if path.symlink_metadata().is_ok() {
            let message = format!("the file '{}' is there already, and an export overwrites nothing", path.display());
            return Err(Failure::usage("file_exists", message).field("file").hint("name another file, or move this one away"));
        }
        let partial = Partial::beside(path);
        // A new file: it follows no link, and has no other mode.
        let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial.0);
        let file = created.map_err(|error| cannot_write(path, &error))?;
        Ok(Self { file: BufWriter::new(file), partial, path: path.to_owned(), lines: 0 })
    }

    pub(crate) fn write(&mut self, line: &Line) -> Result<(), Failure> {
        let mut text = serde_json::to_vec(line).map_err(|error| cannot_write(&self.path, &error.into()))?;
        text.push(b'\n');
        self.lines += 1;
        self.file.write_all(&text).map_err(|error| cannot_write(&self.path, &error))
    }

    /// Writes the last line and gives the file its name, once it is on the disk.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        let lines = self.lines + 1;
        self.write(&Line::End { lines })?;
        let Self { mut file, partial, path, .. } = self;
        let put = || -> io::Result<()> {
            file.flush()?;
            file.get_ref().sync_all()?;
            // A link and not a renaming: it fails where a file of this name has come up meanwhile.
            std::fs::hard_link(&partial.0, &path)?;
            drop(partial);
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            File::open(folder)?.sync_all()
        };
        put().map_err(|error| cannot_write(&path, &error))
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let hint = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "what is in the store was not changed; export again when there is room"
        }
        _ => "what is in the store was not changed; export into a folder that you may write to",
    };
    Failure::new(Exit::Failed, "unwritable_file", format!("'{}' cannot be written: {error}", path.display())).field("file").hint(hint)
}

/// A file that was checked from its first line to its last.
pub(crate) struct ExportFile {
    file: BufReader<File>,
    path: PathBuf,
    /// Where the lines of settings begin, and where those of calls do.
    settings: Vec<u64>,
    calls: Vec<u64>,
}

impl ExportFile {
    /// Reads the whole file once and remembers where its lines begin.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let opened = File::open(path).map_err(|error| {
            Failure::usage("unreadable_file", format!("the file '{}' cannot be read: {error}", path.display())).field("file")
        })?;
        let mut export = Self { file: BufReader::new(opened), path: path.to_owned(), settings: Vec::new(), calls: Vec::new() };
        export.check()?;
        Ok(export)
    }

    fn check(&mut self) -> Result<(), Failure> {
        let (mut number, mut at, mut ended) = (0_u64, 0_u64, false);
        while let Some((line, bytes)) = self.read_line(number + 1)? {
            number += 1;
            match (number, line) {
                (_, _) if ended => return Err(self.broken(number, "a line comes after the last one")),
                (1, Line::TowpathExport(header)) if header.format == FORMAT => {}
                (1, Line::TowpathExport(header)) => return Err(self.other_format(header.format)),
                (1, _) | (_, Line::TowpathExport(_)) => {
                    return Err(self.broken(number, "a header stands in the first line, and only there"));
                }
                (_, Line::Config { .. } | Line::Function { .. } | Line::Batcher { .. }) => self.settings.push(at),
                (_, Line::Call(_) | Line::DeadLetter(_) | Line::LeftOut { .. }) => self.calls.push(at),
                (_, Line::End { lines }) if lines == number => ended = true,
                (_, Line::End { lines }) => return Err(self.broken(number, &format!("it ends with line {lines}, says this line"))),
            }
            at += bytes;
        }
        if ended {
            return Ok(());
        }
        let message = format!("'{}' was cut: its last line is missing after line {number}", self.path.display());
        Err(Failure::usage("cut_export", message).field("file").hint("nothing was imported; export again"))
    }

    /// The next line, and how many bytes it has. `None` at the end.
    fn read_line(&mut self, number: u64) -> Result<Option<(Line, u64)>, Failure> {
        let mut text = Vec::new();
        let read = self.file.read_until(b'\n', &mut text);
        let bytes = read.map_err(|error| self.broken(number, &format!("it cannot be read: {error}")))?;
        if bytes == 0 {
            return Ok(None);
        }
        if text.last() != Some(&b'\n') {
            let message = format!("'{}' was cut in the middle of line {number}", self.path.display());
            return Err(Failure::usage("cut_export", message).field("file").hint("nothing was imported; export again"));
        }
        let line = serde_json::from_slice(&text).map_err(|error| self.broken(number, &error.to_string()))?;
        Ok(Some((line, bytes as u64)))
    }

    fn broken(&self, number: u64, what: &str) -> Failure {
        let message = format!("'{}' is not an export of towpath, or was changed: line {number}: {what}", self.path.display());
        Failure::usage("invalid_export", message).field("file").hint("nothing was imported; `towpath export FILE` writes such a file")
    }

    fn other_format(&self, format: u32) -> Failure {
        let message = format!("'{}' has format {format}, and this version reads format {FORMAT}", self.path.display());
        Failure::usage("invalid_export", message).field("file").hint("use the version of towpath that wrote it")
    }

    /// How many lines there are about calls.
    pub(crate) fn calls(&self) -> usize {
        self.calls.len()
    }

    pub(crate) fn settings(&self) -> usize {
        self.settings.len()
    }

    /// The n-th line of settings, from the first.
    pub(crate) fn setting(&mut self, index: usize) -> Result<Line, Failure> {
        self.line_at(self.settings[index])
    }

    /// The n-th call from the end of the file: the oldest first.
    pub(crate) fn call(&mut self, index: usize) -> Result<Line, Failure> {
        self.line_at(self.calls[self.calls.len() - 1 - index])
    }

    fn line_at(&mut self, at: u64) -> Result<Line, Failure> {
        let moved = self.file.seek(SeekFrom::Start(at));
        moved.map_err(|error| self.broken(0, &format!("it cannot be read: {error}")))?;
        let line = self.read_line(0)?;
        line.map(|(line, _)| line).ok_or_else(|| self.broken(0, "it became shorter while it was read"))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn an_export_that_fails_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("calls.jsonl");
        let writer = ExportWriter::create(&path).unwrap();
        assert!(matches!(&names(folder.path())[..], [name] if name.starts_with("calls.jsonl.") && name.ends_with(".partial")));
        drop(writer);
        assert_eq!(names(folder.path()), Vec::<String>::new());
        let writer = ExportWriter::create(&path).unwrap();
        std::fs::write(&path, "came up meanwhile").unwrap();
        assert!(writer.finish().is_err());
        assert_eq!(names(folder.path()), ["calls.jsonl"]);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "came up meanwhile");
    }

    #[test]
    fn an_export_neither_follows_a_link_nor_takes_a_file_that_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let (path, victim) = (folder.path().join("calls.jsonl"), folder.path().join("victim"));
        std::fs::write(&victim, "mine").unwrap();
        std::os::unix::fs::symlink(&victim, folder.path().join("calls.jsonl.partial")).unwrap();
        ExportWriter::create(&path).unwrap().finish().unwrap();
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "mine");
        let written = path.symlink_metadata().unwrap();
        assert!(written.is_file() && written.permissions().mode() & 0o777 == 0o600, "{written:?}");
    }
}
