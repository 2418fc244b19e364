//! Opening the file: the folder, the lock that keeps a second writer out, pragmas, migrations.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};
use thiserror::Error;

use crate::files::Files;

/// "TOWP": tells a Towpath file from any other SQLite file.
const APPLICATION_ID: i32 = 0x544F_5750;
/// Forward only; a file is never edited after a release.
const MIGRATIONS: [&str; 9] = [
    include_str!("../migrations/0001_calls.sql"),
    include_str!("../migrations/0002_limits.sql"),
    include_str!("../migrations/0003_locks.sql"),
    include_str!("../migrations/0004_batches.sql"),
    include_str!("../migrations/0005_timers.sql"),
    include_str!("../migrations/0006_edges.sql"),
    include_str!("../migrations/0007_retention.sql"),
    include_str!("../migrations/0008_runs.sql"),
    include_str!("../migrations/0009_run_lists.sql"),
];
/// A log that has grown larger is cut to this when it begins anew.
const JOURNAL_BYTES: i64 = 16 * 1024 * 1024;
/// Enough for every statement of the store, so that none is compiled twice.
const STATEMENTS: usize = 256;

/// Where the store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// In memory: gone with the process.
    Memory,
    /// A database file (ending in `.db`, `.sqlite` or `.sqlite3`), or a folder that holds `towpath.db`.
    Path(PathBuf),
}

/// How to open the store.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Where it is.
    pub location: Location,
    /// Who opens it, for the message that a second one gets: `towpath serve on 127.0.0.1:8690`.
    pub owner: String,
    /// Count every lease of calls and locks from the opening on, because nobody could renew it while the store was closed: workers that
    /// have lived on keep their calls. Batches are left as they are: whoever delivers them went with the store, as a rule.
    pub renew_leases: bool,
}

/// Why the store cannot be opened. The text says what to do.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("{path} is in use by {owner}: two processes cannot write one file; stop that one, or talk to it instead")]
    InUse {
        /// The database.
        path: PathBuf,
        /// What the other process said about itself.
        owner: String,
    },
    /// The folder or file cannot be written.
    #[error("{path} cannot be written ({cause}): make the folder writable for this user, or choose another one")]
    NotWritable {
        /// The folder or file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// Others may read it, and that cannot be changed.
    #[error("{path} can be read by other users, and that cannot be changed ({cause}): give it to this user, or choose another path")]
    OpenToOthers {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// Locks and shared memory do not work on network file systems.
    #[error("{path} is on {kind}, a network file system, where SQLite cannot keep its promises: choose a folder on a local disk")]
    NetworkFileSystem {
        /// The folder.
        path: PathBuf,
        /// Which file system.
        kind: &'static str,
    },
    /// It is some other file.
    #[error("{path} is not a Towpath database ({why}): choose another path")]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// It was written by a newer version.
    #[error("{path} has format {found}, and this version knows only up to {known}: use a newer towpath")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: usize,
        /// The newest format known here.
        known: usize,
    },
    /// SQLite refused.
    #[error("{path} cannot be opened: {cause}")]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        cause: String,
    },
}

/// An open database: one connection that writes, two that read, and the lock. In memory there is only the one.
pub(crate) struct Opened {
    pub(crate) writer: Connection,
    pub(crate) readers: Option<Readers>,
    pub(crate) lock: Option<File>,
    pub(crate) files: Option<Files>,
    pub(crate) name: String,
}

/// What people list takes its time; what calls and batches need does not wait behind it.
pub(crate) struct Readers {
    pub(crate) for_work: Connection,
    pub(crate) for_lists: Connection,
}

pub(crate) fn open(options: &OpenOptions) -> Result<Opened, OpenError> {
    match &options.location {
        Location::Memory => open_memory(),
        Location::Path(path) => open_file(&database_path(path), &options.owner),
    }
}

/// A folder holds `towpath.db`; a path that ends like a database is one.
fn database_path(path: &Path) -> PathBuf {
    let looks_like_a_file = path.extension().is_some_and(|end| ["db", "sqlite", "sqlite3"].iter().any(|known| end == *known));
    if looks_like_a_file && !path.is_dir() { path.to_owned() } else { path.join("towpath.db") }
}

fn open_memory() -> Result<Opened, OpenError> {
    let path = PathBuf::from(":memory:");
    let mut writer = Connection::open_in_memory().map_err(|cause| refused(&path, &cause))?;
    prepare(&mut writer, &path)?;
    Ok(Opened { writer, readers: None, lock: None, files: None, name: "memory:".to_owned() })
}

fn open_file(path: &Path, owner: &str) -> Result<Opened, OpenError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    create_private_folder(folder)?;
    refuse_network_file_system(folder)?;
    let lock = take_lock(path, owner)?;
    create_private_file(path)?;
    let mut writer = Connection::open(path).map_err(|cause| refused(path, &cause))?;
    refuse_other_files(&writer, path)?;
    close_to_others(path)?;
    prepare(&mut writer, path)?;
    let readers = Readers { for_work: open_reader(path)?, for_lists: open_reader(path)? };
    let name = format!("sqlite:{}", path.display());
    Ok(Opened { writer, readers: Some(readers), lock: Some(lock), files: Some(Files::of(path)), name })
}

fn open_reader(path: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let reader = Connection::open_with_flags(path, flags).map_err(|cause| refused(path, &cause))?;
    reader.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(reader)
}

fn create_private_folder(folder: &Path) -> Result<(), OpenError> {
    use std::os::unix::fs::DirBuilderExt;
    // What callers send may be private, so a folder that we make is ours alone.
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|cause| OpenError::NotWritable { path: folder.to_owned(), cause })
}

/// Makes the database so that other users cannot read it, whatever the folder allows.
fn create_private_file(path: &Path) -> Result<(), OpenError> {
    use std::os::unix::fs::OpenOptionsExt;
    let made = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    made.map(drop).map_err(|cause| OpenError::NotWritable { path: path.to_owned(), cause })
}

/// A database of ours that others may read is closed to them. The files that SQLite puts beside it get the same rights.
fn close_to_others(path: &Path) -> Result<(), OpenError> {
    use std::os::unix::fs::PermissionsExt;
    let beside = ["-wal", "-shm"].map(|end| PathBuf::from(format!("{}{end}", path.display())));
    for one in std::iter::once(path).chain(beside.iter().map(PathBuf::as_path)) {
        let Ok(found) = fs::metadata(one) else { continue };
        let mode = found.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            let closed = fs::set_permissions(one, fs::Permissions::from_mode(0o600));
            closed.map_err(|cause| OpenError::OpenToOthers { path: one.to_owned(), cause })?;
            tracing::warn!(path = %one.display(), mode = format!("{mode:o}"), "others could read this file of the database; now only this user can");
        }
    }
    Ok(())
}

fn refuse_network_file_system(folder: &Path) -> Result<(), OpenError> {
    let Ok(found) = rustix::fs::statfs(folder) else { return Ok(()) };
    let kind = match u32::try_from(found.f_type).unwrap_or_default() {
        0x6969 => "NFS",
        0x517B | 0xFE53_4D42 | 0xFF53_4D42 => "SMB",
        0x0102_1997 => "9P",
        _ => return Ok(()),
    };
    Err(OpenError::NetworkFileSystem { path: folder.to_owned(), kind })
}

/// The lock lives as long as the returned file. Its text is for the message that a second process gets.
fn take_lock(database: &Path, owner: &str) -> Result<File, OpenError> {
    use std::os::unix::fs::OpenOptionsExt;
    let path = database.with_added_extension("lock");
    let unwritable = |cause| OpenError::NotWritable { path: path.clone(), cause };
    let mut file = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(unwritable)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            let mut text = String::new();
            let _unreadable = file.read_to_string(&mut text);
            let owner = if text.trim().is_empty() { "another process".to_owned() } else { text.trim().to_owned() };
            return Err(OpenError::InUse { path: database.to_owned(), owner });
        }
        Err(fs::TryLockError::Error(cause)) => return Err(unwritable(cause)),
    }
    let text = format!("{owner} (process {})\n", std::process::id());
    let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(text.as_bytes()));
    written.map_err(unwritable)?;
    Ok(file)
}

fn refuse_other_files(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let id: i32 = pragma(connection, path, "application_id")?;
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0)).map_err(|cause| refused(path, &cause))?;
    if id == APPLICATION_ID || (id == 0 && tables == 0) {
        return Ok(());
    }
    Err(OpenError::NotOurs { path: path.to_owned(), why: "it is the database of another program".to_owned() })
}

fn prepare(connection: &mut Connection, path: &Path) -> Result<(), OpenError> {
    let setup = |connection: &Connection| {
        // In a new file alone: one that has tables keeps what it has.
        connection.pragma_update(None, "auto_vacuum", "incremental")?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "journal_size_limit", JOURNAL_BYTES)?;
        connection.pragma_update(None, "synchronous", "full")?;
        connection.pragma_update(None, "cache_size", -16_000)?;
        connection.pragma_update(None, "application_id", APPLICATION_ID)
    };
    setup(connection).map_err(|cause| refused(path, &cause))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    migrate(connection, path)?;
    let level: i64 = pragma(connection, path, "synchronous")?;
    assert_eq!(level, 2, "synchronous=FULL was asked for a moment ago");
    Ok(())
}

fn migrate(connection: &mut Connection, path: &Path) -> Result<(), OpenError> {
    let found: usize = pragma(connection, path, "user_version")?;
    if found > MIGRATIONS.len() {
        return Err(OpenError::Newer { path: path.to_owned(), found, known: MIGRATIONS.len() });
    }
    for (index, migration) in MIGRATIONS.iter().enumerate().skip(found) {
        let apply = |connection: &mut Connection| {
            let step = connection.transaction()?;
            step.execute_batch(migration)?;
            step.pragma_update(None, "user_version", index + 1)?;
            step.commit()
        };
        apply(connection).map_err(|cause| refused(path, &cause))?;
    }
    Ok(())
}

fn pragma<T: rusqlite::types::FromSql>(connection: &Connection, path: &Path, name: &str) -> Result<T, OpenError> {
    connection.pragma_query_value(None, name, |row| row.get(0)).map_err(|cause| refused(path, &cause))
}

fn refused(path: &Path, cause: &rusqlite::Error) -> OpenError {
    use rusqlite::ErrorCode::{NotADatabase, PermissionDenied, ReadOnly};
    match cause.sqlite_error_code() {
        Some(NotADatabase) => OpenError::NotOurs { path: path.to_owned(), why: "it is no SQLite file".to_owned() },
        Some(ReadOnly | PermissionDenied) => OpenError::NotWritable { path: path.to_owned(), cause: io::Error::other(cause.to_string()) },
        _ => OpenError::Sqlite { path: path.to_owned(), cause: cause.to_string() },
    }
}
