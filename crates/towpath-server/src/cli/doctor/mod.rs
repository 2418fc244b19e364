//! `towpath doctor`: looks at everything, and says for each thing what to do.

mod disk;
mod finding;
mod folder;
mod server;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use towpath_core::store::Durability;
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
  towpath doctor --json | jq '.checks[] | select(.level != \"ok\")'";

/// Check the server, the data folder, the disk and the work that waits
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
}

pub(crate) async fn run(globals: &Globals, out: Output, args: DoctorArgs) -> Result<Exit, Failure> {
    let store = args.data.as_ref().map_or_else(|| super::serve::store(globals), |data| format!("sqlite:{}", data.display()));
    let client = Client::to_server(globals)?;
    let Checked { mut findings, mut health } = server::check(&client, globals.server != DEFAULT_SERVER).await;
    findings.push(open_door(globals, &args)?);
    match Place::of_store(&store) {
        Some(place) => {
            findings.extend(folder::check(&place));
            findings.extend(disk::check(&place.existing_folder(), place.exists()));
            if place.exists() {
                let opened = store_opens(&store, health.is_some()).await;
                findings.extend(opened.findings);
                health = health.or(opened.health);
            }
        }
        None => findings.push(Finding::info("store", format!("{store} has no folder to look at"), "checks of the disk are left out")),
    }
    let durability = health.as_ref().map(|health| health.durability.as_str());
    let report = Report::new(power_cut(durability, &store), findings);
    report.show(out);
    Ok(report.exit())
}

/// What is lost when the power goes.
fn power_cut(durability: Option<&str>, store: &str) -> &'static str {
    match durability {
        Some(word) => word.parse().map_or("what was accepted last may be lost, as the store's durability says", Durability::power_cut),
        None if store.starts_with("sqlite:") => "nothing that is accepted will be lost: it is on disk before it is acknowledged",
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
async fn store_opens(store: &str, server_answers: bool) -> Checked {
    match Client::on_store(store).await {
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
