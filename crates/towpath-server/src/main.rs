//! The `towpath` binary: reads the command line and does what it says.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
