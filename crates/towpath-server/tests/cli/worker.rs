//! `towpath worker --exec`: what a program gets, what becomes of what it writes, how many run at once.

use crate::support::{Beside, Server, UNTIL_GO, run, wait_for};

#[test]
fn the_example_of_the_help_works() {
    let server = Server::start();
    let _worker = server.worker("upper", &["--exec", "tr a-z A-Z"]);
    assert_eq!(server.run(&["call", "upper", r#"{"text":"hi"}"#]).exits(0).stdout, "{\"TEXT\":\"HI\"}\n");
}

#[test]
fn output_is_json_or_text_or_nothing() {
    let server = Server::start();
    let _worker = server.worker("say", &["--exec", "printf \"$TOWPATH_PARAM_TEXT\""]);
    let said = |text: &str| server.run(&["call", "say", &serde_json::json!({ "text": text }).to_string()]).exits(0).stdout;
    assert_eq!(said("hello world"), "\"hello world\"\n");
    assert_eq!(said(" [1, 2]\n"), "[1, 2]\n");
    assert_eq!(said("1e400"), "1e400\n");
    assert_eq!(said(""), "null\n");
}

#[test]
fn the_environment_tells_about_the_call() {
    let server = Server::start();
    let _worker = server.worker("tell", &["--scope", "shop", "--exec", "env | grep ^TOWPATH_ | sort"]);
    let arguments = ["call", "tell", r#"{"order-id":17,"name":"Ann Lee","list":[1]}"#, "--scope", "shop", "--call-id", "c-1"];
    let mut command = server.command(&arguments);
    command.env("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    let told: String = serde_json::from_str(&run(command).exits(0).stdout).unwrap();
    for expected in [
        "TOWPATH_ATTEMPT=1",
        "TOWPATH_CALL_ID=c-1",
        "TOWPATH_DELIVERY_ID=1-c-1",
        "TOWPATH_FUNCTION=tell",
        "TOWPATH_IDEMPOTENCY_KEY=c-1",
        "TOWPATH_PARAM_NAME=Ann Lee",
        "TOWPATH_PARAM_ORDER_ID=17",
        "TOWPATH_SCOPE=shop",
        "TOWPATH_TRACEPARENT=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        &format!("TOWPATH_SERVER={}", server.url),
    ] {
        assert!(told.lines().any(|line| line == expected), "{expected} is not in {told}");
    }
    assert!(!told.contains("TOWPATH_PARAM_LIST"), "a list is no variable");
    let remaining = told.lines().find_map(|line| line.strip_prefix("TOWPATH_REMAINING_MS=")).unwrap();
    assert!((1..=30_000).contains(&remaining.parse::<u64>().unwrap()), "{remaining}");
}

#[test]
fn several_words_are_started_without_a_shell() {
    let server = Server::start();
    let _worker = server.worker("words", &["--exec", "printf", "%s|", "$HOME", "--", "--a", "-b"]);
    assert_eq!(server.run(&["call", "words"]).exits(0).stdout, "\"$HOME|--a|-b|\"\n");
    server.run(&["worker", "x", "--exec", "no-such-program-here", "one"]).exits(2).says("no-such-program-here");
    server.run(&["worker", "x", "--exec"]).exits(2).says("names no program");
    server.run(&["worker", "x"]).exits(2).says("--exec");
}

#[test]
fn as_many_run_at_once_as_asked_for_and_no_more() {
    let server = Server::start();
    // Each program notes that it runs, waits until it is let go, and notes that it ends.
    let script = format!("echo start >> log; {UNTIL_GO}; echo end >> log");
    let _worker = server.worker("gate", &["--concurrency", "3", "--exec", &script]);
    let ids: Vec<String> = (0..7).map(|_| server.submit("gate", "{}", &[])).collect();
    let count = |word: &str| std::fs::read_to_string(server.path("log")).unwrap_or_default().lines().filter(|line| *line == word).count();
    wait_for("three to run", || (count("start") >= 3).then_some(()));
    let function = server.run(&["functions", "show", "gate", "--json"]).exits(0).json();
    assert_eq!((&function["running"], &function["queued"]), (&3.into(), &4.into()));
    assert_eq!(count("start"), 3);
    server.write("go", "");
    for id in &ids {
        server.run(&["calls", "wait", id]).exits(0);
    }
    assert_eq!((count("start"), count("end")), (7, 7));
}

#[test]
fn a_progress_line_reaches_the_caller_and_other_lines_do_not() {
    let server = Server::start();
    let script = "echo 'just a remark' >&2; echo 'towpath-progress: {\"percent\":40}' >&2; cat > /dev/null; echo done";
    let _worker = server.worker("steps", &["--exec", script]);
    let ran = server.run(&["call", "steps"]).exits(0);
    assert!(ran.stderr.contains(r#"progress: {"percent":40}"#) && !ran.stderr.contains("remark"), "{}", ran.stderr);
    let id = server.submit("steps", "{}", &[]);
    server.run(&["calls", "wait", &id]).exits(0);
    assert_eq!(server.call(&id)["progress"]["value"]["percent"], 40);
}

#[test]
fn a_program_that_does_not_read_its_input_is_fine_and_a_long_input_arrives_whole() {
    let server = Server::start();
    let long = serde_json::json!({ "text": "x".repeat(500_000) }).to_string();
    server.write("long.json", &long);
    let _deaf = server.worker("deaf", &["--exec", "echo 1"]);
    server.run(&["call", "deaf", "@long.json"]).exits(0);
    let _counts = server.worker("counts", &["--exec", "wc -c"]);
    // The program gets one line break more than was sent, so that a shell's `read` is content.
    assert_eq!(server.run(&["call", "counts", "@long.json"]).exits(0).stdout.trim(), (long.len() + 1).to_string());
}

#[test]
fn a_lease_that_the_server_would_not_grant_is_refused() {
    let server = Server::start();
    server.run(&["worker", "x", "--lease", "50ms", "--exec", "cat"]).exits(2).says("between 100ms and 7d");
}

#[test]
fn parameters_and_description_are_registered_and_validated() {
    let server = Server::start();
    server.write("parameters.json", r#"[{"name":"n","type":"number","required":true}]"#);
    let _worker = server.worker("twice", &["--parameters", "@parameters.json", "--description", "Doubles a number.", "--exec", "cat"]);
    server.run(&["call", "twice", r#"{"n":"two"}"#]).exits(2).says("'n'");
    server.run(&["functions"]).exits(0).prints("Doubles a number.");
    server.run(&["functions", "show", "twice"]).exits(0).prints("\"required\": true");
    server.run(&["worker", "x", "--parameters", "[", "--exec", "cat"]).exits(2).says("parameters is not JSON");
}

#[test]
fn a_program_that_calls_its_own_function_does_not_wait_for_its_own_place() {
    let server = Server::start();
    let script = format!(
        r#"n=$TOWPATH_PARAM_N; if [ "$n" -le 1 ]; then echo 1; else m=$({} call factorial "{{\"n\":$((n-1))}}") && echo $((m*n)); fi"#,
        env!("CARGO_BIN_EXE_towpath")
    );
    let _worker = server.worker("factorial", &["--max-attempts", "1", "--concurrency", "1", "--exec", &script]);
    let answer = server.run(&["call", "factorial", r#"{"n":6}"#, "--timeout", "50s", "--json"]).exits(0).json();
    assert_eq!(answer["data"], 720);
    let calls = server.run(&["calls", "list", "--function", "factorial", "--payloads", "--json"]).exits(0).json();
    let deepest = calls["calls"].as_array().unwrap().iter().map(|call| call["depth"].as_u64().unwrap()).max();
    assert_eq!(deepest, Some(5), "each call knows how deep it is");
}

#[test]
fn a_program_gets_params_with_defaults_filled_in() {
    let server = Server::start();
    let parameters = r#"[{"name":"n","type":"integer","required":true},{"name":"unit","type":"string","default":"kg"}]"#;
    let _worker = server.worker("weigh", &["--parameters", parameters, "--exec", "echo \"$TOWPATH_PARAM_UNIT $(cat)\""]);
    assert_eq!(server.run(&["call", "weigh", r#"{"n":2}"#]).exits(0).json(), "kg {\"n\":2,\"unit\":\"kg\"}");
}

#[test]
fn output_that_is_not_utf8_is_an_error_and_base64_if_asked_for() {
    let server = Server::start();
    let _worker = server.worker("bytes", &["--exec", "printf '\\377\\000x'; echo run >> runs"]);
    let error = server.run(&["call", "bytes", "--json"]).exits(1).error();
    assert_eq!(error["details"]["error"]["code"], "output_not_utf8");
    assert!(error["details"]["error"]["message"].as_str().unwrap().contains("--output base64"), "{error}");
    assert_eq!(std::fs::read_to_string(server.path("runs")).unwrap(), "run\n", "the same output would come again");
    let _base64 = server.worker("base64", &["--output", "base64", "--exec", "printf '\\377\\000x'"]);
    assert_eq!(server.run(&["call", "base64"]).exits(0).stdout, "\"/wB4\"\n");
    server.run(&["worker", "x", "--output", "hex", "--exec", "cat"]).exits(2).says("base64");
}

#[test]
fn the_input_item_reaches_the_program_in_a_file_that_goes_with_it() {
    let server = Server::start();
    let script =
        "cat \"$TOWPATH_INPUT_ITEM_FILE\"; echo \"$TOWPATH_INPUT_ITEM_FILE\" >> names; stat -c %a \"$TOWPATH_INPUT_ITEM_FILE\" >> modes";
    let _worker = server.worker("item", &["--max-attempts", "1", "--exec", script]);
    let item = serde_json::json!({ "json": { "text": "x".repeat(200_000) }, "binary": {} });
    server.write("item.json", &item.to_string());
    let ran = server.run(&["call", "item", "--input-item", "@item.json"]).exits(0);
    assert_eq!(ran.json(), item);
    assert_eq!(server.line_of("modes"), "600");
    let file = server.line_of("names");
    wait_for("the file to be removed", || (!std::path::Path::new(&file).exists()).then_some(()));
    // A worker that is itself the program of another worker's call.
    let mut inner = server.command(&["worker", "without", "--json", "--exec", "echo \"<$TOWPATH_INPUT_ITEM_FILE>\""]);
    inner.env("TOWPATH_INPUT_ITEM_FILE", "/of/another/call");
    let _without = Beside::start(inner);
    assert_eq!(server.run(&["call", "without", "--wait-for-function", "50s"]).exits(0).stdout, "\"<>\"\n");
    server.run(&["call", "item", "--input-item", "{"]).exits(2).says("input item is not JSON");
}
