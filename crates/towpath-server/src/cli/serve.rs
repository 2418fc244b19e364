//! `towpath serve`: the server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::json;
use towpath_server::batches::ConfigFile;
use towpath_server::http::auth::ApiKey;
use towpath_server::logging::LogFormat;
use towpath_server::push::{AllowedTarget, WebhookSecret};
use towpath_server::settings::{LISTEN_DEFAULT, Settings};

use super::exit::Exit;
use super::failure::Failure;
use super::globals::Globals;
use super::output::Output;
use super::retention::RetentionArgs;
use super::{hosting, words};

const EXAMPLES: &str = "\
Examples:
  towpath serve            data in ./.towpath, API on 127.0.0.1:8690
  towpath serve --store sqlite:/var/lib/towpath
  towpath serve --store redis://10.0.0.5
                           on as many machines as wanted
  TOWPATH_API_KEYS=$KEY towpath serve --listen 0.0.0.0:8690 \\
    --allowed-host towpath.example
                           open to the network, for those who have the key

A Redis that keeps nothing on disk (`appendonly no`) or throws keys away when
memory is short (any `maxmemory-policy` but `noeviction`) would lose accepted
calls, and is refused. Who can live with that says --durability memory.
`towpath doctor` says what to change.

SIGTERM, Ctrl-C or a closed terminal (SIGHUP) stops in good order within
--drain-timeout; a second signal stops at once. Nothing that was accepted is
lost either way. Under nohup a closed terminal stops nothing. If standard error
is closed, log lines are dropped and the server goes on.

Environment: TOWPATH_STORE, TOWPATH_DURABILITY, TOWPATH_LISTEN, TOWPATH_CONFIG,
TOWPATH_API_KEYS (separated by commas), TOWPATH_WEBHOOK_SECRET, TOWPATH_LOG
(such as info or debug). Beside an n8n nothing is needed: EXECUTIONS_MODE=queue
selects the Redis that QUEUE_BULL_REDIS_HOST, _PORT, _DB, _USERNAME, _PASSWORD,
_TLS or _CLUSTER_NODES name (so does QUEUE_BULL_REDIS_HOST without a mode),
EXECUTIONS_MODE=regular the embedded store.
Exit codes: 74 the disk failed, 78 refused configuration, 7 the store cannot
be opened or another server has it.";

/// Run the server: API and maintenance
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Where to listen; anything but this machine's own address needs a key
    #[arg(long, value_name = "ADDR", env = "TOWPATH_LISTEN", default_value_t = LISTEN_DEFAULT, value_parser = words::parse_listen)]
    listen: SocketAddr,
    /// A place inside that functions may be pushed to: HOST, HOST:PORT or CIDR (repeat for more)
    #[arg(long = "allow-target", value_name = "PLACE")]
    allow_targets: Vec<AllowedTarget>,
    /// A file of JSON with batchers: {"batchers": {"orders": {"debounce_seconds": 5}}, "elo_routes": {"open": true}}
    #[arg(long, value_name = "FILE", env = "TOWPATH_CONFIG")]
    config: Option<PathBuf>,
    /// A name that this server goes by (repeat for more)
    #[arg(long = "allowed-host", value_name = "NAME")]
    allowed_hosts: Vec<String>,
    /// How long a stop waits for what is under way
    #[arg(long, value_name = "LENGTH", default_value = "25s", value_parser = words::parse_length)]
    drain_timeout: Duration,
    /// Listen on a public address without any key: everyone on the network may call and serve functions
    #[arg(long)]
    insecure_no_auth: bool,
    #[command(flatten)]
    retention: RetentionArgs,
    /// How log lines look: text or json [default: text, with --json json]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
}

pub(crate) async fn run(globals: &Globals, out: Output, args: ServeArgs) -> Result<Exit, Failure> {
    let out = out.without_readers();
    let log_format = args.log_format.unwrap_or(if out.is_json() { LogFormat::Json } else { LogFormat::Text });
    hosting::begin_logging(log_format, "info")?;
    let choice = globals.store_choice()?;
    tracing::info!(store = choice.shown(), "the store is {}", choice.source);
    args.retention.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
    let settings = Settings {
        store: choice.url.clone(),
        durability: globals.durability,
        listen: args.listen,
        api_keys: keys(globals)?,
        insecure_no_auth: args.insecure_no_auth,
        allowed_hosts: args.allowed_hosts,
        allow_targets: args.allow_targets,
        webhook_secrets: webhook_secrets()?,
        config: config(args.config.as_deref())?,
        drain_timeout: args.drain_timeout,
        retention: (&args.retention).into(),
        log_format,
        ..Settings::default()
    };
    hosting::run(settings, out, |addr| {
        if out.is_json() {
            let (store, source) = (choice.shown(), choice.source.to_string());
            out.json(&json!({ "event": "listening", "url": format!("http://{addr}"), "store": store, "store_source": source }));
        }
    })
    .await
}

/// The keys of the command line and of `TOWPATH_API_KEYS`.
pub(crate) fn keys(globals: &Globals) -> Result<Vec<ApiKey>, Failure> {
    let mut keys = globals.server_keys()?;
    keys.extend(listed("TOWPATH_API_KEYS"));
    let refused = |error: String| {
        Failure::new(Exit::RefusedConfiguration, "invalid_api_key", format!("an API key cannot be used: {error}")).field("api-key")
    };
    keys.iter().map(|key| key.parse().map_err(|error: towpath_server::http::auth::InvalidApiKey| refused(error.to_string()))).collect()
}

/// What the configuration file says, if there is one.
pub(crate) fn config(path: Option<&Path>) -> Result<ConfigFile, Failure> {
    let Some(path) = path else { return Ok(ConfigFile::default()) };
    ConfigFile::read(path).map_err(|error| {
        Failure::new(Exit::RefusedConfiguration, "refused_configuration", error.to_string())
            .field("config")
            .hint("`towpath batch settings NAME` shows every setting of a batcher; docs/batches.md explains them")
    })
}

fn webhook_secrets() -> Result<Vec<WebhookSecret>, Failure> {
    let refused = |_| {
        Failure::new(Exit::RefusedConfiguration, "invalid_webhook_secret", "TOWPATH_WEBHOOK_SECRET cannot be used as a secret")
            .hint("write whsec_ and at least 24 random bytes in base64; several with commas, the newest first")
    };
    listed("TOWPATH_WEBHOOK_SECRET").iter().map(|secret| secret.parse().map_err(refused)).collect()
}

/// The entries of a variable that holds several, separated by commas.
fn listed(variable: &str) -> Vec<String> {
    let text = std::env::var(variable).unwrap_or_default();
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(str::to_owned).collect()
}
