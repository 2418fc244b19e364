//! Options that every command understands.

use clap::Args;
use towpath_core::store::Durability;
use towpath_server::settings::store::StoreChoice;

use super::exit::Exit;
use super::failure::Failure;

/// Where client commands look for the server unless told otherwise.
pub(crate) const DEFAULT_SERVER: &str = "http://127.0.0.1:8690";

/// Options that every command understands.
#[derive(Args, Clone, Debug)]
pub(crate) struct Globals {
    /// The server to talk to
    #[arg(long, global = true, value_name = "URL", env = "TOWPATH_SERVER", default_value = DEFAULT_SERVER, help_heading = "Global options")]
    pub(crate) server: String,

    /// Go straight to this store instead of a server, such as sqlite:./.towpath, redis://HOST or memory:
    #[arg(long, global = true, value_name = "URL", help_heading = "Global options")]
    pub(crate) store: Option<String>,

    /// Use no store that keeps less: memory, everysec, always, replicated or fsync
    #[arg(long, global = true, value_name = "LEVEL", env = "TOWPATH_DURABILITY", help_heading = "Global options")]
    pub(crate) durability: Option<Durability>,

    /// The server's key, or @FILE to read it from a file; `serve` takes several [env: TOWPATH_API_KEY]
    // The environment is read by hand: `serve` takes several keys here, and its own variable is another one.
    #[arg(long = "api-key", global = true, value_name = "KEY", help_heading = "Global options")]
    pub(crate) api_keys: Vec<String>,

    /// Write JSON for programs: results on standard output, errors on standard error
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) json: bool,
}

impl Globals {
    /// The key that a client sends.
    pub(crate) fn client_key(&self) -> Result<Option<String>, Failure> {
        match self.api_keys.as_slice() {
            [] => Ok(std::env::var("TOWPATH_API_KEY").ok().filter(|key| !key.is_empty())),
            [key] => read_key(key).map(Some),
            _several => {
                Err(Failure::usage("several_api_keys", "--api-key was given more than once: a client sends one key").field("api-key"))
            }
        }
    }

    /// The store that a server on this machine uses: as named, or as the environment says.
    pub(crate) fn store_choice(&self) -> Result<StoreChoice, Failure> {
        StoreChoice::make(self.store.as_deref(), &|name| std::env::var(name).ok())
            .map_err(|refused| Failure::new(Exit::RefusedConfiguration, "refused_configuration", refused.to_string()))
    }

    /// The keys that a server accepts, as far as the command line names them.
    pub(crate) fn server_keys(&self) -> Result<Vec<String>, Failure> {
        self.api_keys.iter().map(|key| read_key(key)).collect()
    }
}

/// A key, or the content of the file it points to: what stands on a command line, every user of the machine can read.
fn read_key(argument: &str) -> Result<String, Failure> {
    let Some(path) = argument.strip_prefix('@') else { return Ok(argument.to_owned()) };
    let key = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage("unreadable_file", format!("the key file '{path}' cannot be read: {error}")).field("api-key"))?;
    match key.trim() {
        "" => Err(Failure::usage("empty_api_key", format!("the key file '{path}' is empty")).field("api-key")),
        key => Ok(key.to_owned()),
    }
}
