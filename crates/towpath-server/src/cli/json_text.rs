//! JSON as people type it and as they like to read it. Values are kept as text, so that `1e400` or a long number comes out as it went in.

use std::io::Read;

use towpath_server::http::wire::Json;

use super::failure::Failure;

/// Reads JSON from an argument: the text itself, `-` for standard input, `@file` for a file.
pub(crate) fn read_argument(what: &str, argument: &str) -> Result<Json, Failure> {
    let text = match (argument, argument.strip_prefix('@')) {
        ("-", _) => {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text);
            read.map_err(|error| Failure::usage("unreadable_input", format!("{what} cannot be read from standard input: {error}")))?;
            text
        }
        (_, Some(path)) => std::fs::read_to_string(path).map_err(|error| {
            Failure::usage("unreadable_file", format!("{what} cannot be read from the file '{path}': {error}"))
                .hint("'@' means: take the content of this file")
        })?,
        _ => argument.to_owned(),
    };
    parse(what, &text)
}

/// Checks that text is JSON; the failure shows the place.
pub(crate) fn parse(what: &str, text: &str) -> Result<Json, Failure> {
    serde_json::from_str::<Json>(text).map_err(|error| not_json(what, text, &error))
}

fn not_json(what: &str, text: &str, error: &serde_json::Error) -> Failure {
    let reason = error.to_string();
    let reason = reason.split(" at line ").next().unwrap_or(&reason);
    let (line, column) = (error.line(), error.column());
    let message = format!("{what} is not JSON: {reason}, line {line} column {column}\n{}", point_at(text, line, column));
    Failure::usage("invalid_json", message)
        .field(what)
        .hint(r#"write JSON in single quotes, such as '{"text":"hi"}'; text needs double quotes inside: '"hi"'"#)
}

/// The line with a caret under the column, cut to what fits on a screen.
fn point_at(text: &str, line: usize, column: usize) -> String {
    const BEFORE: usize = 50;
    const SHOWN: usize = 76;
    let line = text.lines().nth(line.saturating_sub(1)).unwrap_or("");
    // serde_json counts bytes; a caret is placed by characters.
    let at = line.char_indices().take_while(|(byte, _)| byte + 1 < column).count();
    let start = at.saturating_sub(BEFORE);
    let shown: String = line.chars().skip(start).take(SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let (lead, indent) = if start > 0 { ("…", 1) } else { ("", 0) };
    format!("  {lead}{shown}\n  {:indent$}{:width$}^", "", "", width = at - start)
}

/// The value `null`. An absent value means it, too: the two look the same once they have been read.
pub(crate) fn null() -> Json {
    serde_json::value::RawValue::NULL.to_owned()
}

/// JSON text with line breaks and indentation, every value untouched.
pub(crate) fn pretty(text: &str) -> String {
    let mut pretty = Pretty { text: String::with_capacity(text.len() * 2), depth: 0 };
    let mut characters = text.trim().chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' => pretty.string(&mut characters),
            '{' | '[' => {
                while characters.next_if(|c| c.is_ascii_whitespace()).is_some() {}
                match characters.next_if(|c| matches!(c, '}' | ']')) {
                    Some(close) => pretty.text.extend([character, close]),
                    None => pretty.open(character),
                }
            }
            '}' | ']' => pretty.close(character),
            ',' => pretty.next_item(),
            ':' => pretty.text.push_str(": "),
            white if white.is_ascii_whitespace() => {}
            other => pretty.text.push(other),
        }
    }
    pretty.text
}

struct Pretty {
    text: String,
    depth: usize,
}

impl Pretty {
    fn string(&mut self, characters: &mut impl Iterator<Item = char>) {
        self.text.push('"');
        let mut escaped = false;
        for character in characters {
            self.text.push(character);
            match character {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => return,
                _ => {}
            }
        }
    }

    fn open(&mut self, bracket: char) {
        self.text.push(bracket);
        self.depth += 1;
        self.new_line();
    }

    fn close(&mut self, bracket: char) {
        self.depth = self.depth.saturating_sub(1);
        self.new_line();
        self.text.push(bracket);
    }

    fn next_item(&mut self) {
        self.text.push(',');
        self.new_line();
    }

    fn new_line(&mut self) {
        self.text.push('\n');
        // Beyond this depth indentation would be most of the text.
        self.text.extend(std::iter::repeat_n("  ", self.depth.min(40)));
    }
}

/// JSON text on one line and not longer than so many characters, for tables and progress lines.
pub(crate) fn brief(text: &str, longest: usize) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= longest {
        return line;
    }
    line.chars().take(longest.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_is_shown_with_its_place() {
        let failure = parse("params", r#"{"text": hi}"#).unwrap_err();
        assert_eq!(failure.detail.code, "invalid_json");
        assert_eq!(failure.detail.message, "params is not JSON: expected value, line 1 column 10\n  {\"text\": hi}\n           ^");
    }

    #[test]
    fn the_caret_counts_characters_and_not_bytes() {
        let failure = parse("params", r#"{"заказ": hi}"#).unwrap_err();
        let lines: Vec<&str> = failure.detail.message.lines().collect();
        assert_eq!(lines[1].chars().position(|c| c == 'h'), lines[2].chars().position(|c| c == '^'));
    }

    #[test]
    fn a_mistake_far_to_the_right_is_still_on_the_screen() {
        let text = format!(r#"["{}", oops]"#, "x".repeat(500));
        let failure = parse("params", &text).unwrap_err();
        let lines: Vec<&str> = failure.detail.message.lines().collect();
        assert_eq!(lines[1].chars().nth(lines[2].chars().count() - 1), Some('o'));
        assert!(lines[1].chars().count() < 100);
    }

    #[test]
    fn pretty_text_keeps_every_value_as_it_was() {
        let text = r#"{"a":[1e400,-0,"x,{\"}"],"b":{},"c":[ ],"d":null}"#;
        let pretty = pretty(text);
        assert_eq!(pretty, "{\n  \"a\": [\n    1e400,\n    -0,\n    \"x,{\\\"}\"\n  ],\n  \"b\": {},\n  \"c\": [],\n  \"d\": null\n}");
    }

    #[test]
    fn brief_text_is_one_short_line() {
        assert_eq!(brief("{\n  \"a\": 1\n}", 20), "{ \"a\": 1 }");
        assert_eq!(brief("abcdef", 4), "abc…");
    }
}
