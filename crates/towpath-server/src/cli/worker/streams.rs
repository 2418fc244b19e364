//! What a program writes: an answer of bounded length on standard output; on standard error lines for people, among them progress.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;
use towpath_server::http::wire::Json;

use crate::cli::json_text;

/// The longest answer.
pub(crate) const STDOUT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How much of the end of standard error is kept.
const TAIL_BYTES: usize = 4 * 1024;
/// The longest line, and with it the longest progress report.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// A line that begins so is a progress report.
const PROGRESS: &str = "towpath-progress:";
/// How long the streams may stay open after the program has ended.
pub(crate) const LINGER: Duration = Duration::from_millis(500);

/// Standard output as far as it has been read.
pub(crate) struct Stdout {
    shared: Arc<Mutex<Vec<u8>>>,
    reading: watch::Receiver<Reading>,
    /// Ends with this: a process outside the program's group may keep the pipe open forever.
    _reader: AbortOnDropHandle<()>,
}

/// Standard error as far as it has been read.
pub(crate) struct Stderr {
    shared: Arc<Mutex<VecDeque<u8>>>,
    reading: watch::Receiver<Reading>,
    _reader: AbortOnDropHandle<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    On,
    Ended,
    Overflowed,
}

/// Reads standard output to its end or its bound.
pub(crate) fn read_stdout<R: AsyncRead + Unpin + Send + 'static>(stream: Option<R>) -> Stdout {
    let shared = Arc::new(Mutex::new(Vec::new()));
    let (sender, reading) = watch::channel(Reading::On);
    let kept = Arc::clone(&shared);
    let reader = tokio::spawn(async move {
        let ended = match stream {
            Some(stream) => fill(stream, &kept).await,
            None => Reading::Ended,
        };
        sender.send_replace(ended);
    });
    Stdout { shared, reading, _reader: AbortOnDropHandle::new(reader) }
}

async fn fill(mut stream: impl AsyncRead + Unpin, kept: &Mutex<Vec<u8>>) -> Reading {
    let mut chunk = vec![0; 16 * 1024];
    loop {
        let Ok(read @ 1..) = stream.read(&mut chunk).await else { return Reading::Ended };
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() + read > STDOUT_BYTES_MAX {
            return Reading::Overflowed;
        }
        kept.extend_from_slice(&chunk[..read]);
    }
}

impl Stdout {
    pub(crate) async fn at_end(&mut self) {
        let _closed = self.reading.wait_for(|reading| *reading != Reading::On).await;
    }

    /// Ends when more came than an answer may hold.
    pub(crate) async fn overflowed(&mut self) {
        if self.reading.wait_for(|reading| *reading == Reading::Overflowed).await.is_err() {
            std::future::pending::<()>().await; // it was read to its end
        }
    }

    pub(crate) fn has_overflowed(&self) -> bool {
        *self.reading.borrow() == Reading::Overflowed
    }

    pub(crate) fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Stderr {
    pub(crate) async fn at_end(&mut self) {
        let _closed = self.reading.wait_for(|reading| *reading != Reading::On).await;
    }

    /// The end of what was written, whole characters only.
    pub(crate) fn tail(&self) -> String {
        let kept = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: Vec<u8> = kept.iter().copied().skip_while(|byte| byte & 0xC0 == 0x80).collect();
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }
}

/// Reads standard error line by line to its end. A slow receiver of lines cannot hold the program up.
pub(crate) fn read_stderr<R: AsyncRead + Unpin + Send + 'static>(
    stream: Option<R>,
    progress: watch::Sender<Option<Json>>,
    lines: mpsc::Sender<String>,
) -> Stderr {
    let shared = Arc::new(Mutex::new(VecDeque::new()));
    let (sender, reading) = watch::channel(Reading::On);
    let mut sorter = Sorter { tail: Arc::clone(&shared), progress, lines, line: Vec::new() };
    let reader = tokio::spawn(async move {
        if let Some(mut stream) = stream {
            let mut chunk = vec![0; 8 * 1024];
            while let Ok(read @ 1..) = stream.read(&mut chunk).await {
                sorter.take(&chunk[..read]);
            }
            sorter.end_line();
        }
        sender.send_replace(Reading::Ended);
    });
    Stderr { shared, reading, _reader: AbortOnDropHandle::new(reader) }
}

/// Tells progress reports from other lines.
struct Sorter {
    tail: Arc<Mutex<VecDeque<u8>>>,
    progress: watch::Sender<Option<Json>>,
    lines: mpsc::Sender<String>,
    line: Vec<u8>,
}

impl Sorter {
    fn take(&mut self, chunk: &[u8]) {
        for &byte in chunk {
            if byte != b'\n' {
                self.line.push(byte);
            }
            if byte == b'\n' || self.line.len() >= LINE_BYTES_MAX {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        if self.line.is_empty() {
            return;
        }
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).trim_end().to_owned();
        if let Some(report) = line.strip_prefix(PROGRESS) {
            self.progress.send_replace(Some(json_or_text(report.trim())));
            return;
        }
        self.keep(&line);
        let _the_receiver_is_slower = self.lines.try_send(line);
    }

    fn keep(&self, line: &str) {
        let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend(line.bytes().chain([b'\n']));
        let too_many = tail.len().saturating_sub(TAIL_BYTES);
        tail.drain(..too_many);
    }
}

/// Text as JSON: as it is when it is JSON, `null` when there is none, a string otherwise.
pub(crate) fn json_or_text(output: &str) -> Json {
    let trimmed = output.trim_ascii();
    if trimmed.is_empty() {
        return json_text::null();
    }
    if let Ok(json) = serde_json::from_str::<Json>(trimmed) {
        return json;
    }
    json_string(output.trim_end_matches(['\n', '\r']))
}

/// Text as a JSON string.
pub(crate) fn json_string(text: &str) -> Json {
    serde_json::value::to_raw_value(text).expect("a string always has a JSON form")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_json_if_it_can_be_and_text_otherwise() {
        let cases = [
            ("", "null"),
            (" \n", "null"),
            ("{\"a\":1}\n", r#"{"a":1}"#),
            ("3\n", "3"),
            ("1e400", "1e400"),
            ("hello\n", r#""hello""#),
            ("  two\nlines\r\n", r#""  two\nlines""#),
            ("\u{e9}", "\"\u{e9}\""),
        ];
        for (output, json) in cases {
            assert_eq!(json_or_text(output).get(), json);
        }
    }

    #[tokio::test]
    async fn progress_lines_are_told_from_others_and_the_tail_is_the_end() {
        let (progress, seen) = watch::channel(None);
        let (lines, mut others) = mpsc::channel(10);
        let text = format!("first\n{}\ntowpath-progress: {{\"percent\":40}}\nlast", "x".repeat(TAIL_BYTES));
        let mut stderr = read_stderr(Some(std::io::Cursor::new(text.into_bytes())), progress, lines);
        stderr.at_end().await;
        assert_eq!(seen.borrow().as_ref().map(|json| json.get().to_owned()), Some(r#"{"percent":40}"#.to_owned()));
        let tail = stderr.tail();
        assert!(tail.ends_with("x\nlast") && !tail.contains("first") && tail.len() <= TAIL_BYTES, "{} bytes", tail.len());
        assert_eq!(others.recv().await.as_deref(), Some("first"));
    }

    #[tokio::test]
    async fn more_output_than_the_bound_is_noticed_and_not_kept() {
        let mut stdout = read_stdout(Some(tokio::io::repeat(b'x')));
        stdout.overflowed().await;
        assert!(stdout.has_overflowed());
        assert!(stdout.take().len() <= STDOUT_BYTES_MAX);
    }
}
