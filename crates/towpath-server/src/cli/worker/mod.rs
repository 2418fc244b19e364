//! `towpath worker`: serves a function with any program. It speaks the same HTTP as a worker in any other language.

mod answer;
mod claims;
mod environment;
mod events;
mod group;
mod guarded;
mod held;
mod program;
mod results;
mod session;
mod streams;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use towpath_server::http::wire::functions::{LimitsBody, RetryBody};
use towpath_server::http::wire::workers::{OfferBody, RegisterBody};

use self::answer::OutputForm;
use self::claims::Claimer;
use self::events::Event;
use self::program::{Program, Stop};
use self::session::Session;
use super::client::Client;
use super::exit::Exit;
use super::failure::Failure;
use super::functions::RateArgs;
use super::output::Output;
use super::signals::Signals;
use super::{ids, json_text, time, words};

/// How long the last requests of a leaving worker may take.
const FAREWELL: Duration = Duration::from_secs(5);

/// What the server grants.
const LEASES: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(7 * 24 * 60 * 60);

const EXAMPLES: &str = "\
The program gets the parameters as JSON on standard input, and variables:
  TOWPATH_PARAM_<NAME> for each parameter that is text, a number, true or false;
  TOWPATH_CALL_ID, TOWPATH_DELIVERY_ID, TOWPATH_ATTEMPT, TOWPATH_FUNCTION,
  TOWPATH_SCOPE, TOWPATH_DEADLINE_MS, TOWPATH_REMAINING_MS,
  TOWPATH_IDEMPOTENCY_KEY, TOWPATH_TRACEPARENT, TOWPATH_SERVER
TOWPATH_INPUT_ITEM_FILE names a file with the call's input item, if it has one.
Its standard output is the result: JSON if it is JSON, text otherwise. Output
that is not UTF-8 fails the call; --output base64 gives any bytes as base64.
Exit code 0 is success. 65 fails for good. Any other fails with the end of
standard error as message, and the call is tried again.
A line `towpath-progress: JSON` on standard error is shown to the caller.

At the deadline and on cancel everything the program started is ended: SIGTERM
to its process group, two seconds later SIGKILL. What it leaves running when it
ends is ended, too. When the worker itself dies, all of it is killed at once.
On Linux a process with a session of its own is no exception; elsewhere only
the process group ends.
SIGTERM, Ctrl-C or a closed terminal (SIGHUP) lets what runs finish first; a
second signal hands it back. Under nohup a closed terminal ends nothing.

Examples:
  towpath worker upper --exec 'tr a-z A-Z'
      one word is given to sh -c
  towpath worker greet --exec 'echo \"hello $TOWPATH_PARAM_NAME\"' --concurrency 4
  towpath worker count --exec -- wc -c
      several words are started as they are; -- stands before words with a dash
  towpath worker thumb --output base64 \\
    --exec 'convert \"$TOWPATH_PARAM_FILE\" -resize 100x100 png:-'
      a picture as base64";

/// Serve a function with any program
///
/// Parameters on its standard input, result on its standard output.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, override_usage = "towpath worker [OPTIONS] <NAME> --exec <CMD>... [-- <WORDS>...]")]
pub(crate) struct WorkerArgs {
    /// The function's name
    name: String,
    /// The program: one word for sh -c, or several words as they are
    #[arg(long, value_name = "CMD", num_args = 0.., required = true)]
    exec: Vec<String>,
    /// More words of the program, for those that begin with a dash
    #[arg(last = true, value_name = "WORDS", hide = true)]
    more: Vec<String>,
    /// The scope in which the function is known
    #[arg(long)]
    scope: Option<String>,
    /// How many calls run at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrency: u32,
    /// What the program's standard output becomes
    #[arg(long, value_enum, value_name = "FORM", default_value_t = OutputForm::Text)]
    output: OutputForm,
    /// One sentence for people
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Parameter definitions (a JSON list) or a JSON Schema (an object), or @FILE
    #[arg(long, value_name = "JSON")]
    parameters: Option<String>,
    /// How often a call is tried before it becomes a dead letter
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_attempts: Option<u32>,
    /// Spread the function's calls over so many more streams of a Redis, without an order among them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    shards: Option<u16>,
    #[command(flatten)]
    rate: RateArgs,
    /// How long this worker may be silent before its calls go to others
    #[arg(long, value_name = "LENGTH", default_value = "30s", value_parser = words::parse_length)]
    lease: Duration,
    /// How long running calls may take to finish when the worker is asked to leave
    #[arg(long, value_name = "LENGTH", default_value = "25s", value_parser = words::parse_length)]
    drain_timeout: Duration,
}

pub(crate) async fn run(client: &Arc<Client>, out: Output, args: WorkerArgs) -> Result<Exit, Failure> {
    if !LEASES.contains(&args.lease) {
        return Err(Failure::usage("out_of_range", "a lease lasts between 100ms and 7d").field("lease"));
    }
    let out = out.without_readers();
    let program = Program::from_words([args.exec.clone(), args.more.clone()].concat())?;
    let mut signals = Signals::listen()?;
    let session = Arc::new(Session::new(Arc::clone(client), out, introduction(&args)?, args.lease));
    let registered = tokio::select! {
        registered = session.register() => registered?,
        () = signals.next() => return Ok(Exit::Interrupted),
    };
    out.note(&format!("each call runs: {program}"));
    let (function, server) = (args.name.as_str(), session.client.server());
    Event::Serving { function, worker_id: &session.worker_id, server, concurrency: args.concurrency }.tell(out);

    let beat_every = Duration::from_millis(registered.heartbeat_ms).min(args.lease / 3).max(Duration::from_millis(100));
    let crew = Crew::start(&session, program, &args, beat_every);
    let signal = signals.next_named().await;
    crew.leave(&session, signal, &mut signals, args.drain_timeout).await;
    Ok(Exit::Done)
}

fn introduction(args: &WorkerArgs) -> Result<RegisterBody, Failure> {
    let parameters = args.parameters.as_deref().map(|text| json_text::read_argument("parameters", text)).transpose()?;
    let offer = OfferBody {
        name: args.name.clone(),
        scope: args.scope.clone(),
        description: args.description.clone(),
        parameters,
        concurrency: Some(args.concurrency),
        retry: args.max_attempts.map(|max_attempts| RetryBody { max_attempts: Some(max_attempts), ..RetryBody::default() }),
        limits: (args.rate.body().is_some() || args.shards.is_some()).then(|| LimitsBody {
            rate: args.rate.body(),
            shards: args.shards,
            ..LimitsBody::default()
        }),
    };
    // The id is made here, so that registering twice because of a lost answer is still one worker.
    Ok(RegisterBody { worker_id: Some(ids::worker_id()), kind: Some("exec".to_owned()), functions: vec![offer] })
}

/// The tasks of a worker.
struct Crew {
    stop_claiming: CancellationToken,
    claiming: JoinHandle<()>,
    beating: JoinHandle<()>,
    delivering: JoinHandle<()>,
    running: TaskTracker,
}

impl Crew {
    fn start(session: &Arc<Session>, program: Program, args: &WorkerArgs, beat_every: Duration) -> Self {
        let stop_claiming = CancellationToken::new();
        let (results, outgoing) = mpsc::channel(64);
        let running = TaskTracker::new();
        let claimer = Claimer {
            session: Arc::clone(session),
            program,
            concurrency: args.concurrency,
            output: args.output,
            results,
            running: running.clone(),
        };
        let claiming = tokio::spawn(Arc::new(claimer).run(stop_claiming.clone()));
        let delivering = tokio::spawn(results::deliver(Arc::clone(session), outgoing));
        let beating = tokio::spawn({
            let session = Arc::clone(session);
            async move { session.keep_alive(beat_every).await }
        });
        Self { stop_claiming, claiming, beating, delivering, running }
    }

    /// Finishes what runs while its leases are renewed, hands back what takes too long, and signs off.
    async fn leave(self, session: &Session, signal: &str, signals: &mut Signals, drain_timeout: Duration) {
        self.stop_claiming.cancel();
        let _ended = self.claiming.await; // so that nothing is started after everything was told to stop
        self.running.close();
        Event::Draining { running: self.running.len(), signal }.tell(session.out);
        let until = time::now() + drain_timeout;
        tokio::select! {
            () = session.held.emptied() => {}
            () = time::sleep_until(until) => {}
            () = signals.next() => {}
        }
        session.held.stop_all(Stop::HandBack);
        // Programs end within their grace; their results may have to wait for a server that is away.
        let _all_ended = tokio::time::timeout(guarded::GRACE + FAREWELL, self.running.wait()).await;
        let _all_sent = tokio::time::timeout(FAREWELL, self.delivering).await;
        self.beating.abort();
        let _ended = self.beating.await;
        say_farewell(session, time::now() + FAREWELL).await;
    }
}

async fn say_farewell(session: &Session, until: Instant) {
    let finished = session.finished.load(Ordering::Relaxed);
    match session.unregister(until.saturating_duration_since(time::now())).await {
        Ok(left) => Event::Left { finished, handed_back: left.handed_back }.tell(session.out),
        Err(error) if error.is_not_found() => Event::Left { finished, handed_back: 0 }.tell(session.out),
        Err(error) => {
            session.out.note(&format!(
                "the server could not be told: {}; it notices within {}",
                error.brief(),
                words::length(session.lease)
            ));
            Event::Left { finished, handed_back: 0 }.tell(session.out);
        }
    }
}
