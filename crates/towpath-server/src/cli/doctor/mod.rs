//! `towpath doctor`: looks at everything, and says for each thing what to do.

mod disk;
mod finding;
mod folder;
mod redis;
mod server;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use towpath_core::store::Durability;
use towpath_server::http::wire::health::HealthBody;
use towpath_server::settings::store::{StoreChoice, StoreSource};
use towpath_server::settings::{LISTEN_DEFAULT, Settings};

use self::finding::{Finding, Report};
use self::folder::Place;
use self::server::Checked;
use super::client::Client;
use super::exit::Exit;
use super::failure::Failure;
use super::globals::{DEFAULT_SERVER, Globals};
use super::output::Output;

const EXAMPLES: &str = "\
Exit codes: 0 fine, 1 warnings, 2 failures.

Examples:
  towpath doctor     the server at 127.0.0.1:8690 and the data in ./.towpath
  towpath doctor --data /var/lib/towpath --listen 0.0.0.0:8690
  towpath doctor --store redis://10.0.0.5 --durability always
  towpath doctor --print-acl     the rights that a Redis user of ours needs
  towpath doctor --json | jq '.checks[] | select(.level != \"ok\")'";

/// Check the server, the store, the disk and the work that waits
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// The data folder, or the database file [default: that of --store or TOWPATH_STORE, or ./.towpath]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where the server listens, or will
    #[arg(long, value_name = "ADDR", env = "TOWPATH_LISTEN", default_value_t = LISTEN_DEFAULT)]
    listen: SocketAddr,
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
        return redis::print_acl(out, &choice.url, &args.user);
    }
    let client = Client::to_server(globals)?;
    let Checked { mut findings, health } = server::check(&client, globals.server != DEFAULT_SERVER).await;
    findings.push(open_door(globals, &args)?);
    findings.push(Finding::ok("choice", format!("{}: {}", choice.shown(), choice.source)));
    let looked = match redis::check(&choice.url, globals.durability).await {
        Some(examined) => look_at_redis(globals, &choice, examined, health.is_some()).await,
        None => look_at_folder(globals, &choice, health.is_some()).await,
    };
    findings.extend(looked.findings);
    let health = health.or(looked.health);
    let durability = looked.durability.or_else(|| health.and_then(|health| health.durability.parse().ok()));
    let report = Report::new(power_cut(durability, &choice.url), findings);
    report.show(out);
    Ok(report.exit())
}

/// What was seen of the store.
struct Looked {
    findings: Vec<Finding>,
    health: Option<HealthBody>,
    durability: Option<Durability>,
}

async fn look_at_redis(globals: &Globals, choice: &StoreChoice, examined: redis::Examined, server_answers: bool) -> Looked {
    let redis::Examined { mut findings, durability } = examined;
    // A server, where there is one, has said already how the work is; a Redis that is refused cannot be opened.
    if server_answers || durability.is_none() {
        return Looked { findings, health: None, durability };
    }
    let opened = store_opens(globals, choice, false).await;
    findings.extend(opened.findings);
    Looked { findings, health: opened.health, durability }
}

async fn look_at_folder(globals: &Globals, choice: &StoreChoice, server_answers: bool) -> Looked {
    let Some(place) = Place::of_store(&choice.url) else {
        let nothing = Finding::info("store", format!("{} has no folder to look at", choice.shown()), "checks of the disk are left out");
        return Looked { findings: vec![nothing], health: None, durability: None };
    };
    let mut findings = folder::check(&place);
    findings.extend(disk::check(&place.existing_folder(), place.exists()));
    let mut health = None;
    if place.exists() {
        let opened = store_opens(globals, choice, server_answers).await;
        findings.extend(opened.findings);
        health = opened.health;
    }
    Looked { findings, health, durability: None }
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
    let many = api_keys.len();
    let settings = Settings { listen: args.listen, api_keys, insecure_no_auth: args.insecure_no_auth, ..Settings::default() };
    let public = !args.listen.ip().is_loopback();
    Ok(match settings.check() {
        Err(refused) => Finding::fail("listen", refused.to_string(), "set TOWPATH_API_KEYS, or listen on 127.0.0.1"),
        Ok(()) if public && many == 0 => Finding::warn(
            "listen",
            format!("{} is open to everyone who reaches it", args.listen),
            "set TOWPATH_API_KEYS and leave out --insecure-no-auth",
        ),
        Ok(()) if public => Finding::ok("listen", format!("{} with {many} key(s)", args.listen)),
        Ok(()) => Finding::ok("listen", format!("{} is this machine only", args.listen)),
    })
}

/// Opens the store as a server would. That another process has it is as it should be when a server runs.
async fn store_opens(globals: &Globals, choice: &StoreChoice, server_answers: bool) -> Checked {
    let store = choice.shown();
    match Client::on_store(&choice.url, globals.durability).await {
        Ok(client) if server_answers => {
            client.close().await;
            let advice = "compare it with the store that the server names, or name the right one with --data";
            Checked {
                findings: vec![Finding::info("store", format!("{store} opens, so the server above uses another one"), advice)],
                health: None,
            }
        }
        Ok(client) => {
            let mut checked = server::check(&client, true).await;
            checked.findings.retain(|finding| finding.check != "server");
            client.close().await;
            checked.findings.insert(0, Finding::ok("store", format!("{store} opens and can be read")));
            checked
        }
        Err(failure) => Checked { findings: vec![cannot_open(&failure, server_answers)], health: None },
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
