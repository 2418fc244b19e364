//! Every error code there is: its word, its status, what it means and what to do. docs/errors.md holds this table.

use axum::http::StatusCode;

use super::wire::error::Effect;

macro_rules! codes {
    ($($name:ident $word:literal $status:ident $effect:ident $meaning:literal $next:literal;)*) => {
        /// A stable word for what went wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $(#[doc = $meaning] $name,)*
        }

        impl Code {
            /// All codes, by status.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The word on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// The status of an answer with this code.
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status,)* }
            }

            /// Whether the request may have had an effect, unless the answer knows better.
            pub const fn effect(self) -> Effect {
                match self { $(Self::$name => Effect::$effect,)* }
            }

            const fn meaning(self) -> &'static str {
                match self { $(Self::$name => $meaning,)* }
            }

            const fn next_step(self) -> &'static str {
                match self { $(Self::$name => $next,)* }
            }
        }
    };
}

codes! {
    InvalidJson "invalid_json" BAD_REQUEST None "The body is not JSON." "`details` has the byte, line and column where reading stopped.";
    TooDeep "too_deep" BAD_REQUEST None "The body nests deeper than 64 levels." "Flatten it, or send the deep part as a string.";
    InvalidBody "invalid_body" BAD_REQUEST None "The body could not be read to its end." "Send it again.";
    InvalidField "invalid_field" BAD_REQUEST None "A field has the wrong type or an impossible value." "`field` names it, `message` says what is expected.";
    UnknownField "unknown_field" BAD_REQUEST None "A field or query parameter is not known here." "Check its spelling; `message` lists the known ones.";
    MissingField "missing_field" BAD_REQUEST None "A field that has no default is missing. With status 422: one that a message's batch key is made of." "Add it.";
    DuplicateField "duplicate_field" BAD_REQUEST None "A field or query parameter stands there twice." "Send it once.";
    OutOfRange "out_of_range" BAD_REQUEST None "A number is too small, too large or not whole. With status 422: by a batcher's own rules." "`details` has `min` and `max`, or `message` says them.";
    InvalidName "invalid_name" BAD_REQUEST None "A name or an id is empty, too long, reserved, or has characters that it may not have." "`message` says what to change.";
    Unauthorized "unauthorized" UNAUTHORIZED None "The key is missing or not one of the server's." "Send `Authorization: Bearer <key>`.";
    CrossOrigin "cross_origin" FORBIDDEN None "A page of another site sent the request." "Call the API from a program, or from a page of this server.";
    StoreNotAllowed "store_not_allowed" FORBIDDEN None "The server's user of the store may not do that." "`message` says which right it lacks.";
    RouteNotFound "route_not_found" NOT_FOUND None "There is no such path." "See /openapi.json.";
    FunctionNotFound "function_not_found" NOT_FOUND None "No such function is known." "Start a worker that serves it; `details.closest` has names that look alike.";
    CallNotFound "call_not_found" NOT_FOUND None "There is no such call, or its retention is over." "Check the id; `retain_ms` keeps outcomes longer.";
    WorkerNotFound "worker_not_found" NOT_FOUND None "The worker is not, or no longer, known." "Register it again with POST /v1/workers.";
    DeadLetterNotFound "dead_letter_not_found" NOT_FOUND None "The call is no dead letter, or was replayed or dropped before." "List them with GET /v1/dead-letters.";
    PolicyNotFound "policy_not_found" NOT_FOUND None "There is no such policy, neither of the scope nor for all. With status 422: the rate of a function or batcher names it." "Keep one with PUT /v1/limits/{scope}, or send rules.";
    BatcherNotFound "batcher_not_found" NOT_FOUND None "There is no such batcher." "Keep its settings with PUT /v1/batches/{batcher}/settings, or name it in the server's configuration file.";
    BatchNotFound "batch_not_found" NOT_FOUND None "Nothing is open for this batch key." "Check the key; GET /v1/batches/{batcher} lists what is open.";
    LockNotFound "lock_not_found" NOT_FOUND None "The scope was never locked, or not for a long time." "Check the scope; GET /v1/locks lists what is held.";
    RunNotFound "run_not_found" NOT_FOUND None "There is no such run, or its retention is over." "Check the id; GET /v1/runs lists what there is.";
    WorkflowNotFound "workflow_not_found" NOT_FOUND None "No version of the workflow was given, and the server does not know exactly one." "Send `version`; `details.versions` has those that are known.";
    MethodNotAllowed "method_not_allowed" METHOD_NOT_ALLOWED None "The path exists, but not with this method." "The `allow` header lists the methods.";
    BodyTimeout "body_timeout" REQUEST_TIMEOUT None "The body did not arrive in time, which is 30 seconds unless set otherwise." "Send it again.";
    CallCancelled "call_cancelled" CONFLICT Unknown "The call was cancelled while it was waited for." "Nothing, if that was wanted; otherwise call again under a new id.";
    LeaseLost "lease_lost" CONFLICT None "The delivery is no longer this worker's." "Stop working on it; its result will be refused.";
    ConfigConflict "config_conflict" CONFLICT None "The configuration changed since the version given in `if_version`." "Read it again; `details.version` is the present one.";
    FunctionInUse "function_in_use" CONFLICT None "The function has workers, calls that are not over, or dead letters." "Stop its workers, let its calls end or cancel them, and replay or drop its dead letters.";
    NotReplayable "not_replayable" CONFLICT None "The dead letter was never a batch: it has nothing that could be sent again." "Look at it, push what it should have been, and drop it.";
    NotPulled "not_pulled" CONFLICT None "The batcher's batches go elsewhere: they are not for consumers to fetch." "Set its target to `{\"pull\": true}`.";
    LockHeld "lock_held" CONFLICT None "The lock is not to be had: `details.outcome` is `held`, `timed_out`, `self` or `spent`." "Try again later; `details.holder` says who has it.";
    LockLost "lock_lost" CONFLICT None "The lock is no longer the caller's, or never was: `details.outcome` is `lost` or `not_holder`." "Stop, and write nothing more under its fence.";
    LockChanged "lock_changed" CONFLICT None "The lock changed since it was looked at." "Look again, and decide again.";
    ReferenceConflict "reference_conflict" CONFLICT None "The reference belongs to a run with another input." "`details.run_id` is that run; use another reference, or `on_conflict: return_existing`.";
    RunClosed "run_closed" CONFLICT None "The run has closed." "`details.state` says how; nothing was done.";
    PayloadTooLarge "payload_too_large" PAYLOAD_TOO_LARGE None "The body, the params or the progress report are larger than allowed." "`details.limit` is the limit in bytes; send less, or a reference.";
    BatchTooLarge "batch_too_large" PAYLOAD_TOO_LARGE None "A list has more entries than allowed." "Send it in parts of `details.limit`.";
    MessageTooLarge "message_too_large" PAYLOAD_TOO_LARGE None "A message is larger than 256 KiB." "Send a reference to what is large.";
    UnsupportedMediaType "unsupported_media_type" UNSUPPORTED_MEDIA_TYPE None "The content type is not `application/json`, or the body is compressed." "Send plain JSON with `Content-Type: application/json`.";
    MisdirectedHost "misdirected_host" MISDIRECTED_REQUEST None "The `Host` header names a host that this server does not go by." "Use localhost or the listen address, or start the server with `--allowed-host`.";
    InvalidParams "invalid_params" UNPROCESSABLE_ENTITY None "The params do not fit the function's parameter definitions." "`details.problems` names each parameter, what was expected and what came.";
    IdempotencyConflict "idempotency_conflict" UNPROCESSABLE_ENTITY None "The same call id or idempotency key was used before for something else." "Use a new one, or send what was sent then.";
    DepthExceeded "depth_exceeded" UNPROCESSABLE_ENTITY None "Too many calls call each other." "Look for a recursion without an end.";
    TargetNotAllowed "target_not_allowed" UNPROCESSABLE_ENTITY None "The server may not post to this address." "Use a public https address, or start the server with `--allow-target`.";
    BadName "bad_name" UNPROCESSABLE_ENTITY None "A part of a message's batch key is too long or has control characters." "`field` names it.";
    BadField "bad_field" UNPROCESSABLE_ENTITY None "A field of a message, of a batcher's settings or of the shared configuration is not what it must be." "`field` names it, `message` says what to change.";
    BadRule "bad_rule" UNPROCESSABLE_ENTITY None "A rule of a limit cannot be, or rules do not go together." "`message` says what to change.";
    RuleTooLarge "rule_too_large" UNPROCESSABLE_ENTITY None "A rule's numbers are so large that they could not be computed exactly." "Make limit, burst, window or wait smaller.";
    TooMany "too_many" UNPROCESSABLE_ENTITY None "There are more rules than a check may have, or none." "`details.limit` is how many there may be.";
    Ambiguous "ambiguous" UNPROCESSABLE_ENTITY None "Fields that exclude each other were given." "Leave out all but one.";
    BadPolicies "bad_policies" UNPROCESSABLE_ENTITY None "The policies in the shared configuration cannot be read, or would be too many." "Look at `limit_policies` with GET /v1/config.";
    UnencodableInput "unencodable_input" UNPROCESSABLE_ENTITY None "A number in the input of a run or a step is too large to be compared." "Send it as a string.";
    BadStep "bad_step" UNPROCESSABLE_ENTITY None "A step of a commit cannot be: its kind, its name or an option that its kind does not have." "`field` names it, `message` says what to change.";
    BadEntry "bad_entry" UNPROCESSABLE_ENTITY None "A result of a commit does not fit: the step is not open, or the fact does not belong to it." "Read the journal and the facts again.";
    CallFailed "call_failed" FAILED_DEPENDENCY Unknown "The function's handler failed, or the call was given up." "`details.error` is the handler's error; a dead letter can be replayed.";
    Overloaded "overloaded" TOO_MANY_REQUESTS None "The function's backlog is full." "Try again after `Retry-After` seconds.";
    BatcherFull "batcher_full" TOO_MANY_REQUESTS None "The batcher has as many messages in open batches as it takes. Nothing was taken." "Try again after `Retry-After` seconds; look whether its target works.";
    LockQueueFull "lock_queue_full" TOO_MANY_REQUESTS None "Too many callers wait for the lock." "Try again after `Retry-After` seconds.";
    MailboxFull "mailbox_full" TOO_MANY_REQUESTS None "The run has 10,000 events that it has not consumed." "Try again after `Retry-After` seconds; look why the run does not go on.";
    Internal "internal" INTERNAL_SERVER_ERROR Unknown "The server has a bug." "Report it with the request id; the log has more.";
    StoreCorrupt "store_corrupt" INTERNAL_SERVER_ERROR Unknown "The store holds something that cannot be read." "Run `towpath doctor`.";
    RunsUnsupported "runs_unsupported" NOT_IMPLEMENTED None "The store of this server keeps no workflow runs." "Start the server on a store that does, such as `sqlite:./.towpath`.";
    NoWorkers "no_workers" SERVICE_UNAVAILABLE None "No healthy worker serves the function, and the caller did not want to wait." "Start a worker.";
    StoreUnavailable "store_unavailable" SERVICE_UNAVAILABLE None "The store did not take it." "Try again after `Retry-After` seconds.";
    StoreReadonly "store_readonly" SERVICE_UNAVAILABLE None "The data folder cannot be written." "Make it writable; work goes on by itself.";
    StoreBroken "store_broken" SERVICE_UNAVAILABLE None "A write to disk failed, and the server stops; or the files of the store were removed, and it takes nothing more." "`message` says which: check the disk, or put the files back; then start the server again.";
    StoreWrongType "store_wrong_type" SERVICE_UNAVAILABLE None "A key of the store holds something that is not Towpath's." "Rename or delete the key that `message` names; other functions go on.";
    DurabilityBelowMinimum "durability_below_minimum" SERVICE_UNAVAILABLE None "The store keeps less than the operator asked for (`--durability`), so it takes no new calls, messages or locks. Accepted work goes on." "`message` says what to set on the store; work is taken again within 5 seconds after that.";
    OverloadedServer "overloaded_server" SERVICE_UNAVAILABLE None "The server has as many requests or connections as it takes." "Try again after `Retry-After` seconds.";
    Draining "draining" SERVICE_UNAVAILABLE None "The server is stopping." "Try again after `Retry-After` seconds; if `details.call_id` is there, ask for that call then.";
    CallTimedOut "call_timed_out" GATEWAY_TIMEOUT Unknown "The call was not over at its deadline. It is now." "`details.phase` says whether it was `queued` or `running`.";
    DurabilityNotReached "durability_not_reached" GATEWAY_TIMEOUT None "Too few replicas confirmed a lock, and it was taken back." "Ask under a new request id when the replicas follow.";
    StoreUnknown "store_unknown" GATEWAY_TIMEOUT Unknown "The store's reply was lost: the request may or may not have been taken." "Ask by id, or repeat with the same id.";
    StoreFull "store_full" INSUFFICIENT_STORAGE None "There is no room on the store's disk, or in its memory." "Make room, or let workers and retentions make some; work goes on by itself.";
}

/// The table as Markdown, the body of docs/errors.md.
pub fn table() -> String {
    let mut text = String::from("| code | status | effect | meaning | what to do |\n|---|---|---|---|---|\n");
    for code in Code::ALL {
        let effect = if code.effect() == Effect::None { "none" } else { "unknown" };
        let (word, status) = (code.as_str(), code.status().as_u16());
        text += &format!("| `{word}` | {status} | {effect} | {} | {} |\n", code.meaning(), code.next_step());
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_code_is_a_word_of_its_own_and_an_error() {
        let words: HashSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(words.len(), Code::ALL.len());
        for code in Code::ALL {
            assert!(code.as_str().chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{code:?}");
            assert!(code.status().is_client_error() || code.status().is_server_error(), "{code:?}");
        }
    }

    #[test]
    fn codes_stand_in_the_order_of_their_status() {
        assert!(Code::ALL.is_sorted_by_key(|code| code.status().as_u16()));
    }
}
