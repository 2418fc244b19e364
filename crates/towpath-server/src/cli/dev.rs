//! `towpath dev`: everything on one machine, with functions to play with.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use clap::builder::styling::{AnsiColor, Style};
use serde_json::json;
use towpath_server::logging::LogFormat;
use towpath_server::settings::{LISTEN_DEFAULT, Settings};

use super::exit::Exit;
use super::failure::Failure;
use super::globals::Globals;
use super::output::Output;
use super::{hosting, words};

const EXAMPLES: &str = "\
Examples:
  towpath dev                   data in ./.towpath, API on 127.0.0.1:8690
  towpath dev --listen 127.0.0.1:9000 --data /tmp/play
  towpath dev --store memory:   forgets everything when it stops";

/// Run everything on one machine, with functions to play with
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DevArgs {
    /// Where to listen
    #[arg(long, value_name = "ADDR", env = "TOWPATH_LISTEN", default_value_t = LISTEN_DEFAULT, value_parser = words::parse_listen)]
    listen: SocketAddr,
    /// The folder for the data
    #[arg(long, value_name = "DIR", default_value = "./.towpath")]
    data: PathBuf,
    /// A file of JSON with batchers: {"batchers": {"orders": {"debounce_seconds": 5}}}
    #[arg(long, value_name = "FILE", env = "TOWPATH_CONFIG")]
    config: Option<PathBuf>,
}

pub(crate) async fn run(globals: &Globals, out: Output, args: DevArgs) -> Result<Exit, Failure> {
    let out = out.without_readers();
    hosting::begin_logging(if out.is_json() { LogFormat::Json } else { LogFormat::Text }, "warn")?;
    let store = globals.store.clone().unwrap_or_else(|| format!("sqlite:{}", args.data.display()));
    let settings = Settings {
        store: store.clone(),
        durability: globals.durability,
        refuse_lossy: false, // a user who tries things out loses nothing of worth, and is warned
        listen: args.listen,
        api_keys: super::serve::keys(globals)?,
        allow_loopback_targets: true,
        config: super::serve::config(args.config.as_deref())?,
        drain_grace: std::time::Duration::ZERO, // no load balancer has to notice
        demo: true,
        ..Settings::default()
    };
    hosting::run(settings, out, |addr| welcome(out, addr, &towpath::shown(&store))).await
}

fn welcome(out: Output, addr: SocketAddr, store: &str) {
    let url = format!("http://{addr}");
    if out.is_json() {
        return out.json(&json!({ "event": "listening", "url": url, "store": store }));
    }
    let bold = Style::new().bold();
    let command: Style = AnsiColor::Cyan.on_default();
    let towpath = this_program();
    let elsewhere = if addr == LISTEN_DEFAULT { String::new() } else { format!("  {command}export TOWPATH_SERVER={url}{command:#}\n") };
    let kept = if store == "memory:" { "gone when this stops" } else { "whatever is accepted survives a crash" };
    out.line(&format!(
        "{bold}Towpath {} is running at {url}{bold:#}\n\
         data in {store}: {kept}\n\n\
         Try it in another terminal:\n{elsewhere}\
         \x20 {command}{towpath} call hello '{{\"name\":\"you\"}}'{command:#}\n\
         \x20 {command}{towpath} call slow '{{\"seconds\":3}}'{command:#}           shows its progress\n\
         \x20 {command}{towpath} worker upper --exec 'tr a-z A-Z'{command:#}    a function of your own; then\n\
         \x20 {command}{towpath} call upper '{{\"text\":\"hi\"}}'{command:#}\n\n\
         `{towpath} functions` lists what can be called, `{towpath} --help` the rest. Ctrl-C stops; what was accepted goes on at the next start.",
        env!("CARGO_PKG_VERSION"),
    ));
}

/// How this program was called, so that what is shown can be copied: from a fresh build it is not on the PATH yet.
fn this_program() -> String {
    std::env::args().next().filter(|name| name.contains('/')).unwrap_or_else(|| "towpath".to_owned())
}
