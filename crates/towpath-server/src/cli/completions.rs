//! `towpath completions`: scripts that teach a shell the commands and options.

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use serde_json::json;

use super::Cli;
use super::exit::Exit;
use super::output::Output;

const EXAMPLES: &str = "\
Examples:
  towpath completions bash > ~/.local/share/bash-completion/completions/towpath
  towpath completions zsh > ~/.zfunc/_towpath
  towpath completions fish > ~/.config/fish/completions/towpath.fish";

/// Print a completion script for a shell
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(out: Output, args: &CompletionsArgs) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "towpath", &mut script);
    let script = String::from_utf8_lossy(&script);
    if out.is_json() {
        out.json(&json!({ "shell": args.shell.to_string(), "script": script }));
    } else {
        out.line(script.trim_end());
    }
    Exit::Done
}
