//! The ratios as a picture: one bar per level, the aims as lines.

use std::fmt::Write;

use super::report::{Report, Row};

const LEFT: f64 = 120.0;
const WIDTH: f64 = 460.0;
const BAR: f64 = 26.0;
const STEP: f64 = 40.0;

/// A picture of the ratios to the bare store.
pub(super) fn svg(report: &Report) -> String {
    let height = 70.0 + STEP * report.rows.len() as f64;
    let most = report.rows.iter().map(Row::ratio).fold(1.0, f64::max);
    let scale = WIDTH / most;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"20\">durable calls/s against {} ({})</text>\n",
        report.store.bare(),
        report.machine
    );
    for aim in report.store.aims() {
        let x = LEFT + aim * scale;
        let bottom = height - 18.0;
        let _infallible = writeln!(
            text,
            "<line x1=\"{x}\" y1=\"32\" x2=\"{x}\" y2=\"{bottom}\" stroke=\"#999\" stroke-dasharray=\"4 3\"/><text x=\"{x}\" y=\"{height}\" dy=\"-5\" fill=\"#666\" text-anchor=\"middle\" font-size=\"11\">{aim}</text>"
        );
    }
    for (row, number) in report.rows.iter().zip(0_u8..) {
        text += &bar(row, 40.0 + STEP * f64::from(number), scale);
    }
    text + "</svg>\n"
}

fn bar(row: &Row, y: f64, scale: f64) -> String {
    let (width, middle) = (row.ratio() * scale, y + BAR / 2.0 + 4.0);
    let label =
        format!("{:.2} ({:.0}/s, p99 {:.1} ms)", row.ratio(), row.measured.calls_per_second(), row.measured.p99.as_secs_f64() * 1e3);
    format!(
        "<text x=\"110\" y=\"{middle}\" text-anchor=\"end\">{} in flight</text>\n\
         <rect x=\"{LEFT}\" y=\"{y}\" width=\"{width}\" height=\"{BAR}\" fill=\"#2a6f97\"/>\n\
         <text x=\"{}\" y=\"{middle}\" stroke=\"white\" stroke-width=\"4\" paint-order=\"stroke\">{label}</text>\n",
        row.in_flight,
        LEFT + width + 6.0
    )
}
