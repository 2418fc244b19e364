//! `towpath openapi`: the description of the HTTP API, without a server.

use super::exit::Exit;
use super::output::Output;

pub(crate) fn run(out: Output) -> Exit {
    out.line(towpath_server::http::openapi::text().trim_end());
    Exit::Done
}
