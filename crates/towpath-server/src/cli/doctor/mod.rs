//! `towpath doctor`: looks at everything, and says for each thing what to do.

mod acl;
mod finding;
mod server;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use towpath_core::store::Durability;
use towpath_server::doctor::folder::Place;
use towpath_server::doctor::{Examined, Finding, Level};
use towpath_server::http::wire::health::HealthBody;
use towpath_server::settings::store::{StoreChoice, StoreSource};
use towpath_server::settings::{LISTEN_DEFAULT, Settings};

use self::finding::Report;
use self::server::Checked;
use super::client::Client;
use super::exit::Exit;
use super::failure::Failure;
use super::globals::{DEFAULT_SERVER, Globals};
use super::output::Output;

const EXAMPLES: &str = "\
Exit codes: 0 fine, 1 warnings, 2 failures.

Examples:
  towpath doctor     the server at 127.0.0.1:8690, which examines its own store
  towpath doctor --data /var/lib/towpath --listen 0.0.0.0:8690
  towpath doctor --store redis://10.0.0.5 --durability always
  towpath doctor --print-acl     the rights that a Redis user of ours needs
  towpath doctor --json | jq '.checks[] | select(.level != \"ok\")'";

/// Check the server, the store, the disk and the work that waits
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// The data folder, or the database file [default: the store of the server that answers, or that of --store or
    /// TOWPATH_STORE, or ./.towpath]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where a server will listen [default: where the server that answers listens, or 127.0.0.1:8690]
    #[arg(long, value_name = "ADDR", env = "TOWPATH_LISTEN", value_parser = super::words::parse_listen)]
    listen: Option<SocketAddr>,
    /// The server is meant to be open without any key
    #[arg(long)]
    insecure_no_auth: bool,
    /// Print the line that makes a Redis user with just the rights that are needed, and check nothing
    #[arg(long)]
    print_acl: bool,
    /// The user's name
    #[arg(long, value_name = "NAME", default_value = "towpath", requires = "print_acl")]
    user: String,
}

pub(crate) async fn run(globals: &Globals, out: Output, args: DoctorArgs) -> Result<Exit, Failure> {
    let choice = match &args.data {
        Some(data) => StoreChoice { url: format!("sqlite:{}", data.display()), source: StoreSource::Argument },
        None => globals.store_choice()?,
    };
    if args.print_acl {
        return acl::print_acl(out, &choice.url, &args.user);
    }
    let client = Client::to_server(globals)?;
    let Checked { mut findings, health, refused } = server::check(&client, globals.server != DEFAULT_SERVER).await;
    // A server that answers knows its own store, unless it wants a key. A store that was named is looked at in any case.
    let is_named = choice.source == StoreSource::Argument;
    let asks_server = !is_named && (health.is_some() || refused.is_some_and(|status| ![401, 403].contains(&status)));
    let mut looked = match if asks_server { look_by_server(&client, health.as_ref()).await } else { None } {
        Some(mut looked) => {
            if args.listen.is_some() {
                looked.findings.retain(|finding| finding.check != "listen");
                findings.push(open_door(globals, &args)?);
            }
            looked
        }
        None => {
            findings.push(open_door(globals, &args)?);
            findings.push(Finding::ok("choice", format!("{}: {}", choice.shown(), choice.source)));
            look_here(globals, &choice, health.is_some().then_some(&client)).await
        }
    };
    let is_known = looked.is_open() && (is_named || refused.is_none());
    findings.append(&mut looked.findings);
    let health = health.or(looked.health);
    let durability = looked.durability.or_else(|| health.and_then(|health| health.durability.parse().ok()));
    let power_cut = if is_known { power_cut(durability, &looked.store) } else { NOT_KNOWN };
    let report = Report::new(power_cut, findings);
    report.show(out);
    Ok(report.exit())
}

/// What is said of a power cut when the store could not be asked.
const NOT_KNOWN: &str = "not known: the store could not be asked what it keeps; see the failures below";

/// What was seen of the store.
struct Looked {
    store: String,
    findings: Vec<Finding>,
    health: Option<HealthBody>,
    durability: Option<Durability>,
}

impl Looked {
    /// It was not seen that the store is out of reach or cannot be opened.
    fn is_open(&self) -> bool {
        let is_closed = |finding: &Finding| finding.level == Level::Fail && ["store", "connection"].contains(&finding.check.as_str());
        !self.findings.iter().any(is_closed)
    }
}

/// What the server says about its own store; `None` if it cannot, because it is of an earlier version.
async fn look_by_server(client: &Client, health: Option<&HealthBody>) -> Option<Looked> {
    let mut looked = match server::examine(client).await? {
        Ok(body) => Looked {
            durability: body.durability.as_deref().and_then(|level| level.parse().ok()),
            findings: body.checks,
            store: body.store,
            health: None,
        },
        Err(error) => Looked {
            findings: vec![Finding::fail("store", format!("the server did not examine it: {}", error.brief()), "look at the server's log")],
            store: health.map(|health| health.store.clone()).unwrap_or_default(),
            health: None,
            durability: None,
        },
    };
    looked.findings.push(Finding::ok("store", "open in the server, which has examined it"));
    looked.findings.insert(0, Finding::ok("choice", format!("{}: the store of the server at {}", looked.store, client.server())));
    Some(looked)
}

/// Looks at the store from here, and opens it if it can be opened. `server` is one that answers.
async fn look_here(globals: &Globals, choice: &StoreChoice, server: Option<&Client>) -> Looked {
    let Examined { mut findings, durability, is_redis } = towpath_server::doctor::examine(&choice.url, globals.durability).await;
    let mut looked = Looked { store: choice.url.clone(), findings: Vec::new(), health: None, durability };
    // A Redis has room for many processes, and a server has said already how its work is; one that is refused cannot be opened.
    let opens = match is_redis {
        true => server.is_none() && durability.is_some(),
        false => Place::of_store(&choice.url).is_some_and(|place| place.exists()),
    };
    if opens {
        let opened = store_opens(globals, choice, server).await;
        findings.extend(opened.findings);
        looked.health = opened.health;
    }
    looked.findings = findings;
    looked
}

/// What is lost when the power goes.
fn power_cut(durability: Option<Durability>, store: &str) -> &'static str {
    match durability {
        Some(level) => level.power_cut(),
        None if store.starts_with("sqlite:") => "nothing that is accepted will be lost: it is on disk before it is acknowledged",
        None if store.contains("://") => "what was accepted last may be lost: the store cannot be asked, or does not keep what it should",
        None => "everything would be lost: this store is in memory",
    }
}

/// The listen address against the keys, as `serve` would judge it.
fn open_door(globals: &Globals, args: &DoctorArgs) -> Result<Finding, Failure> {
    let api_keys = super::serve::keys(globals)?;
    let listen = args.listen.unwrap_or(LISTEN_DEFAULT);
    let settings = Settings { listen, api_keys, insecure_no_auth: args.insecure_no_auth, ..Settings::default() };
    Ok(towpath_server::doctor::listen(listen, &settings))
}

/// Opens the store as a server would. That another process has it is as it should be when a server runs.
async fn store_opens(globals: &Globals, choice: &StoreChoice, server: Option<&Client>) -> Checked {
    let store = choice.shown();
    match Client::on_store(&choice.url, globals.durability).await {
        Ok(client) if server.is_some() => {
            client.close().await;
            let advice = "compare it with the store that the server names, or name the right one with --data";
            Checked {
                findings: vec![Finding::info("store", format!("{store} opens, so the server above uses another one"), advice)],
                health: None,
                refused: None,
            }
        }
        Ok(client) => {
            let mut checked = server::check(&client, true).await;
            checked.findings.retain(|finding| finding.check != "server");
            checked.findings.extend(server::names(&client).await);
            client.close().await;
            checked.findings.insert(0, Finding::ok("store", format!("{store} opens and can be read")));
            checked
        }
        Err(failure) => {
            let mut findings = vec![cannot_open(&failure, server.is_some())];
            // The process that has it knows the names in it.
            if let Some(server) = server.filter(|_| failure.detail.code == "store_in_use") {
                findings.extend(server::names(server).await);
            }
            Checked { findings, health: None, refused: None }
        }
    }
}

fn cannot_open(failure: &Failure, server_answers: bool) -> Finding {
    let message = failure.detail.message.clone();
    match failure.detail.code.as_str() {
        "store_in_use" if server_answers => Finding::ok("store", "held by one process, as it should be"),
        "store_in_use" => Finding::warn("store", message, "a process has it but no server answers: name its address with --server"),
        _ => Finding::fail("store", message, failure.detail.hint.clone().unwrap_or_else(|| "look at the message".to_owned())),
    }
}
