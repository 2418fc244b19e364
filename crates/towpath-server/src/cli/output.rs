//! Where output goes: machine output and results on standard output, everything for people who watch on standard error.

use std::io::{ErrorKind, IsTerminal, Write};

use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table, presets};
use serde::Serialize;

use super::exit::Exit;
use super::failure::Failure;
use super::json_text;

/// How many characters of a line that cannot be written stand in the error: an id or a fence is shorter.
const UNWRITTEN_SHOWN: usize = 300;

/// How this run speaks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    json: bool,
    /// The process has more to do than to print.
    goes_on: bool,
}

impl Output {
    /// JSON for programs, or aligned text for people.
    pub(crate) const fn new(json: bool) -> Self {
        Self { json, goes_on: false }
    }

    /// For a process that serves or holds something: it goes on when its output has no reader any more.
    pub(crate) const fn without_readers(self) -> Self {
        Self { goes_on: true, ..self }
    }

    /// Whether a program reads.
    pub(crate) const fn is_json(self) -> bool {
        self.json
    }

    /// Whether a person looks at standard output.
    pub(crate) fn stdout_is_terminal(self) -> bool {
        !self.json && std::io::stdout().is_terminal()
    }

    /// Whether a person looks at standard error.
    pub(crate) fn stderr_is_terminal(self) -> bool {
        !self.json && std::io::stderr().is_terminal()
    }

    /// One line of results. Colours are taken out when no terminal shows them.
    pub(crate) fn line(self, text: &str) {
        self.line_of("it", text);
    }

    /// One line of results. If it cannot be written, the error names the thing that the line is of.
    pub(crate) fn line_of(self, thing: &str, text: &str) {
        let written = put(&mut anstream::stdout().lock(), text);
        // A reader that has seen enough (`towpath calls | head`) is no error: the process ends quietly, as other tools do.
        if let Err(error) = written
            && !self.goes_on
        {
            if error.kind() == ErrorKind::BrokenPipe {
                std::process::exit(Exit::Done as i32);
            }
            let message = format!("the output cannot be written: {error}; {thing} is: {}", json_text::brief(text, UNWRITTEN_SHOWN));
            Failure::new(Exit::Failed, "output_not_written", message).effect_unknown().report(&self);
            std::process::exit(Exit::Failed as i32);
        }
    }

    /// One line of results for programs.
    pub(crate) fn json<T: Serialize>(self, value: &T) {
        match serde_json::to_string(value) {
            Ok(text) => self.line(&text),
            Err(error) => self.error_line(&format!("error: the answer cannot be written as JSON: {error}")),
        }
    }

    /// A remark for people who watch. Programs do not get it.
    pub(crate) fn note(self, text: &str) {
        if !self.json {
            self.error_line(text);
        }
    }

    /// One line on standard error. If it cannot be written, the exit code still says how the command ended.
    pub(crate) fn error_line(self, text: &str) {
        let _unread = put(&mut anstream::stderr().lock(), text);
    }

    /// Aligned columns without borders.
    pub(crate) fn table(self, table: &Table) {
        self.line(&table.trim_fmt());
    }
}

fn put(stream: &mut impl Write, text: &str) -> std::io::Result<()> {
    writeln!(stream, "{text}").and_then(|()| stream.flush())
}

/// A table with these headings.
pub(crate) fn table<const N: usize>(headings: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    // An id that is broken over two lines cannot be copied; a line that is too long can.
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(headings.map(|heading| Cell::new(heading.to_uppercase()).add_attribute(Attribute::Bold)));
    if let Some(first) = table.column_mut(0) {
        first.set_padding((0, 1));
    }
    table
}

/// A right-aligned number; zero is shown faintly, because what matters is what is not zero.
pub(crate) fn count(number: u64) -> Cell {
    let cell = Cell::new(number).set_alignment(CellAlignment::Right);
    if number == 0 { cell.fg(Color::DarkGrey) } else { cell }
}

/// A call's state, coloured by whether a person should look.
pub(crate) fn state(word: &str) -> Cell {
    let colour = match word {
        "completed" => Color::Green,
        "failed" | "dead" | "timed_out" | "expired" | "blocked" => Color::Red,
        "delayed" | "cancelled" | "terminated" => Color::Yellow,
        "running" => Color::Cyan,
        _ => return Cell::new(word),
    };
    Cell::new(word).fg(colour)
}

/// Lines of `name  value`, aligned, for a single thing.
pub(crate) fn facts(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let lines = pairs.iter().map(|(name, value)| {
        let indented = value.replace('\n', &format!("\n{:width$}  ", ""));
        format!("{name:width$}  {indented}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_aligned_and_later_lines_are_indented() {
        let text = facts(&[("id", "1".to_owned()), ("params", "{\n}".to_owned())]);
        assert_eq!(text, "id      1\nparams  {\n        }");
    }

    #[test]
    fn a_table_has_aligned_columns_and_no_borders() {
        let mut table = table(["name", "calls"]);
        table.add_row(vec![Cell::new("a"), count(1)]);
        table.add_row(vec![Cell::new("long-name"), count(10)]);
        assert_eq!(table.trim_fmt(), "NAME       CALLS\na              1\nlong-name     10");
    }
}
