//! A page of the documentation as steps: where each runs, its commands, and what the page says they print.

use std::path::{Path, PathBuf};

/// The words with which a comment in a page speaks to this test: `<!-- docs-test: redis -->`.
const MARK: &str = "<!-- docs-test: ";

/// What a reader does on a page, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// From here on everything happens in another place.
    Place(Place),
    /// A command and its output.
    Command(Command),
    /// A block that is not run, and why not.
    NotRun { line: usize, reason: String },
}

/// Where commands run: a fresh folder and shell each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Beside `towpath dev`. Every page begins here.
    Dev,
    /// Beside a Redis, without any server.
    Redis,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    /// Where it stands in the page.
    pub(crate) line: usize,
    pub(crate) text: String,
    /// The lines below it.
    pub(crate) prints: Vec<String>,
    /// It is not run where `towpath dev` uses a Redis, for this reason.
    pub(crate) embedded_only: Option<String>,
    /// A look at something that comes about by itself: it is repeated until it prints what the page shows.
    pub(crate) until: bool,
}

impl Command {
    /// The command without its last `&`, if it has one and runs in the background.
    pub(crate) fn in_background(&self) -> Option<&str> {
        let before_comment = self.text.split(" #").next().unwrap_or_default().trim_end();
        before_comment.strip_suffix(" &")
    }
}

/// A page as it was read.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) name: String,
    pub(crate) steps: Vec<Step>,
    /// What is wrong with it before anything runs.
    pub(crate) complaints: Vec<String>,
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text of a file of the repository.
pub(crate) fn text_of(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// README.md and every page in docs/.
pub(crate) fn all_names() -> Vec<String> {
    let files = std::fs::read_dir(root().join("docs")).expect("there is a folder docs");
    let mut names: Vec<String> = files
        .map(|file| file.expect("it can be read").file_name().into_string().expect("a plain name"))
        .filter(|name| name.ends_with(".md"))
        .map(|name| format!("docs/{name}"))
        .collect();
    names.push("README.md".to_owned());
    names.sort();
    names
}

/// A mark, read and not used yet.
enum Mark {
    NotRun(String),
    EmbeddedOnly(String),
    Until,
}

impl Page {
    pub(crate) fn read(name: &str) -> Self {
        Self::parse(name, &text_of(name))
    }

    pub(crate) fn parse(name: &str, text: &str) -> Self {
        let mut page = Self { name: name.to_owned(), steps: Vec::new(), complaints: Vec::new() };
        let (mut mark, mut lines) = (None, text.lines().enumerate());
        while let Some((index, line)) = lines.next() {
            if let Some(said) = line.strip_prefix(MARK) {
                mark = page.read_mark(index + 1, said.trim_end_matches("-->").trim());
            } else if let Some(language) = line.strip_prefix("```") {
                let block: Vec<&str> = lines.by_ref().map(|(_, line)| line).take_while(|line| !line.starts_with("```")).collect();
                page.read_block(index + 1, language, &block, mark.take());
            }
        }
        page
    }

    fn read_mark(&mut self, line: usize, said: &str) -> Option<Mark> {
        match said.split_once(": ") {
            Some(("not run", reason)) => return Some(Mark::NotRun(reason.to_owned())),
            Some(("embedded only", reason)) => return Some(Mark::EmbeddedOnly(reason.to_owned())),
            None if said == "until" => return Some(Mark::Until),
            None if said == "redis" => self.steps.push(Step::Place(Place::Redis)),
            None if said == "dev" => self.steps.push(Step::Place(Place::Dev)),
            _ => self.complain(line, &format!("no such mark: '{said}'")),
        }
        None
    }

    fn read_block(&mut self, line: usize, language: &str, block: &[&str], mark: Option<Mark>) {
        let words: Vec<&str> = language.split(',').collect();
        match words[0] {
            "console" => match mark {
                Some(Mark::NotRun(reason)) => self.steps.push(Step::NotRun { line, reason }),
                mark => self.read_commands(line, block, mark.as_ref()),
            },
            "json" => {
                if let Err(error) = serde_json::from_str::<serde_json::Value>(&block.join("\n")) {
                    self.complain(line, &format!("this is not JSON: {error}"));
                }
            }
            "rust" if words.contains(&"ignore") => self.complain(line, "Rust that is not compiled: write it so that it is"),
            "rust" => {} // compiled: see `every_page_with_rust_in_it_is_compiled`
            "text" if !block.iter().any(|line| is_command(line)) => {}
            "text" => self.complain(line, "commands in a block of text: make it a `console` block, so that they are run"),
            other => self.complain(line, &format!("a block of '{other}': use console, json, rust or text")),
        }
    }

    /// A line that begins with `$ ` is a command, with the lines that it is continued on, after a `\\` or in quotes; what follows is its output.
    fn read_commands(&mut self, start: usize, block: &[&str], mark: Option<&Mark>) {
        let embedded_only = if let Some(Mark::EmbeddedOnly(reason)) = mark { Some(reason) } else { None };
        let until = matches!(mark, Some(Mark::Until));
        let mut continues = false;
        for (index, text) in block.iter().enumerate() {
            let line = start + 1 + index;
            let last = match self.steps.last_mut() {
                Some(Step::Command(command)) if command.line > start => Some(command),
                _ => None,
            };
            match (text.strip_prefix("$ "), last) {
                (None, Some(command)) if continues => command.text = format!("{}\n{text}", command.text),
                (Some(text), _) => {
                    let (text, embedded_only) = (text.to_owned(), embedded_only.cloned());
                    self.steps.push(Step::Command(Command { line, text, prints: Vec::new(), embedded_only, until }));
                }
                (None, Some(command)) => {
                    command.prints.push((*text).to_owned());
                    continue;
                }
                (None, None) => self.complain(line, "output without a command: begin commands with `$ `"),
            }
            continues = match self.steps.last() {
                Some(Step::Command(command)) => command.text.ends_with('\\') || !command.text.matches('\'').count().is_multiple_of(2),
                _ => false,
            };
        }
    }

    fn complain(&mut self, line: usize, what: &str) {
        self.complaints.push(format!("{}:{line}: {what}", self.name));
    }
}

fn is_command(line: &str) -> bool {
    ["$ ", "towpath ", "curl ", "redis-cli ", "cargo "].iter().any(|start| line.starts_with(start))
}
