//! A store that is named with `--store` and is not there. Only commands that put something into a store begin one.

use std::path::{Path, PathBuf};

use towpath_server::doctor::folder::Place;

use super::exit::Exit;
use super::failure::Failure;
use super::globals::Globals;

/// Refuses an embedded store that does not exist, before opening it would make it.
pub(super) fn refuse(globals: &Globals) -> Result<(), Failure> {
    let Some(place) = globals.store.as_deref().and_then(Place::of_store) else { return Ok(()) };
    let names_nothing = place.named == Path::new("");
    if names_nothing || !matches!(database(&place).try_exists(), Ok(false)) {
        return Ok(());
    }
    let message = format!("there is no store at '{}', and this command does not begin one", place.named.display());
    Err(Failure::new(Exit::Unreachable, "no_store", message)
        .field("store")
        .hint("check the path in --store; `towpath serve`, `towpath dev` and `towpath import` begin a store"))
}

/// The file of the store: a folder holds `towpath.db`.
fn database(place: &Place) -> PathBuf {
    if place.named == place.folder { place.folder.join("towpath.db") } else { place.named.clone() }
}
