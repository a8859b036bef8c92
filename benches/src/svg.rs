//! Draws a curve as SVG that is readable on light and dark pages.

use std::fmt::Write as _;

use crate::curve::{Curve, Point, Scale, Series};
use crate::report::short;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 74.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 48.0;
const LINE_HEIGHT: f64 = 14.0;
/// The highest number of horizontal lines.
const MAX_LINES: f64 = 6.0;

const STYLE: &str = "
  text { font: 12px system-ui, sans-serif; fill: #1f2328 }
  .page { fill: #ffffff } .grid { stroke: #d1d9e0 } .bound { stroke: #9a6700; stroke-dasharray: 6 4 }
  .python { stroke: #0969da; fill: #0969da } .ruby { stroke: #cf222e; fill: #cf222e }
  path { fill: none !important; stroke-width: 2 } text.python, text.ruby, text.limit { stroke: none }
  text.limit { fill: #9a6700 } .middle { text-anchor: middle } .end { text-anchor: end } .name { font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .page { fill: #0d1117 } .grid { stroke: #3d444d } .bound { stroke: #d29922 }
    .python { stroke: #4493f8; fill: #4493f8 } .ruby { stroke: #f47067; fill: #f47067 } text.limit { fill: #d29922 }
  }
";

/// The plot of a curve: one line per guest, cost as a multiple of the first point.
pub(crate) fn plot(curve: &Curve, series: &[&Series]) -> String {
    let frame = Frame::around(curve, series);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n\
         <title>{}: {}, by {}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"page\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"6\"/>\n",
        curve.name, curve.what, curve.axis
    );
    text(
        &mut svg,
        "name",
        (LEFT, 22.0),
        &format!("{}, as a multiple of the first point", curve.what),
    );
    text(&mut svg, "middle", (f64::midpoint(LEFT, WIDTH - RIGHT), HEIGHT - 10.0), curve.axis);
    let mut at = 0.0;
    while at <= frame.highest {
        across(&mut svg, "grid", frame.y(at));
        text(&mut svg, "end", (LEFT - 8.0, frame.y(at) + 4.0), &format!("{}×", tidy(at)));
        at += frame.step;
    }
    for x in &frame.ticks {
        text(&mut svg, "middle", (frame.x(*x), HEIGHT - BOTTOM + 18.0), &short(*x));
    }
    if let Some(flat) = curve.flat {
        across(&mut svg, "bound", frame.y(flat));
        text(&mut svg, "limit", (LEFT + 6.0, frame.y(flat) - 6.0), &format!("limit {flat}×"));
    }
    let mut last_label = f64::NEG_INFINITY;
    let mut drawn: Vec<&&Series> =
        series.iter().filter(|series| !series.points.is_empty()).collect();
    drawn.sort_by(|a, b| f64::total_cmp(&frame.end(a), &frame.end(b)));
    for series in drawn {
        last_label = line(&mut svg, &frame, series, last_label);
    }
    svg.push_str("</svg>\n");
    svg
}

/// Draws one guest's points with a label at the end that does not overlap the label before. Returns its height.
fn line(svg: &mut String, frame: &Frame, series: &Series, last_label: f64) -> f64 {
    let class = series.guest.name();
    let place = |point: &Point| (frame.x(point.x), frame.y(point.ratio));
    let path: Vec<String> =
        series.points.iter().map(place).map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    let _ = writeln!(svg, "<path class=\"{class}\" d=\"M{}\"/>", path.join(" L"));
    for point in &series.points {
        let (x, y) = place(point);
        let title = format!("{}: × {:.2} ({})", short(point.x), point.ratio, point.cost);
        let _ = writeln!(
            svg,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"><title>{title}</title></circle>"
        );
    }
    let end = frame.end(series);
    let label = end.max(last_label + LINE_HEIGHT); // they are drawn from the top of the page downwards
    text(svg, class, (WIDTH - RIGHT + 10.0, label + 4.0), class);
    label
}

fn text(svg: &mut String, class: &str, (x, y): (f64, f64), words: &str) {
    let _ = writeln!(svg, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{words}</text>");
}

fn across(svg: &mut String, class: &str, y: f64) {
    let end = WIDTH - RIGHT;
    let _ = writeln!(
        svg,
        "<line class=\"{class}\" x1=\"{LEFT}\" x2=\"{end}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
    );
}

/// Maps values to positions on the page.
struct Frame {
    scale: Scale,
    /// The lowest and the highest value of the quantity on the scale.
    from: f64,
    to: f64,
    highest: f64,
    step: f64,
    ticks: Vec<f64>,
}

impl Frame {
    fn around(curve: &Curve, series: &[&Series]) -> Self {
        let points = || series.iter().flat_map(|series| &series.points);
        let dearest = points().map(|point| point.ratio).fold(curve.flat.unwrap_or(1.0), f64::max);
        let (step, highest) = steps(dearest * 1.1);
        let mut ticks: Vec<f64> = points().map(|point| point.x).collect();
        ticks.sort_by(f64::total_cmp);
        ticks.dedup();
        let ends = |value: Option<&f64>| seen(curve.scale, value.copied().unwrap_or(1.0));
        let (from, to) = (ends(ticks.first()), ends(ticks.last()));
        Self { scale: curve.scale, from, to: to.max(from + f64::EPSILON), highest, step, ticks }
    }

    fn x(&self, value: f64) -> f64 {
        let share = (seen(self.scale, value) - self.from) / (self.to - self.from);
        LEFT + 16.0 + share * (WIDTH - LEFT - RIGHT - 32.0)
    }

    fn y(&self, ratio: f64) -> f64 {
        HEIGHT - BOTTOM - ratio / self.highest * (HEIGHT - TOP - BOTTOM)
    }

    /// How high a series ends.
    fn end(&self, series: &Series) -> f64 {
        series.points.last().map_or(0.0, |point| self.y(point.ratio))
    }
}

fn seen(scale: Scale, value: f64) -> f64 {
    match scale {
        Scale::Linear => value,
        Scale::Logarithmic => value.max(1.0).log10(),
    }
}

/// Round distances between lines that reach a value, and where the last one is.
fn steps(value: f64) -> (f64, f64) {
    let magnitude = 10_f64.powf((value / MAX_LINES).log10().floor());
    let fits = |step: &f64| value / step <= MAX_LINES;
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * magnitude).into_iter().find(fits);
    let step = step.unwrap_or(10.0 * magnitude);
    (step, (value / step).ceil() * step)
}

/// Rounds away the error of adding fractions.
fn tidy(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use lifecycle::dialect::Language;

    use super::*;
    use crate::curve::CURVES;
    use crate::row::{Quantity, Unit};

    #[test]
    fn every_point_is_on_the_page() {
        for curve in CURVES {
            let found = |ratios: [f64; 3]| {
                let point = |(at, ratio)| Point {
                    x: [1.0, 100.0, 1e6][at],
                    cost: Quantity::new(1e-4, Unit::Seconds),
                    ratio,
                };
                Ok(ratios.into_iter().enumerate().map(point).collect())
            };
            let python = curve.series(Language::Python, found([1.0, 1.05, 0.97]));
            let ruby = curve.series(Language::Ruby, found([1.0, 12.0, 40.0]));
            let svg = plot(curve, &[&python, &ruby]);
            assert_eq!(svg.matches("<circle").count(), 6);
            for (attribute, most) in [("cx=\"", WIDTH), ("cy=\"", HEIGHT), (" y=\"", HEIGHT)] {
                for rest in svg.split(attribute).skip(1) {
                    let place: f64 = rest.split('"').next().unwrap().parse().unwrap();
                    assert!((0.0..=most).contains(&place), "{}: {attribute}{place}", curve.name);
                }
            }
        }
    }

    #[test]
    fn lines_are_round() {
        for (value, step, highest) in
            [(1.3, 0.25, 1.5), (2.2, 0.5, 2.5), (9.0, 2.0, 10.0), (44.0, 10.0, 50.0)]
        {
            assert_eq!(steps(value), (step, highest), "{value}");
        }
    }
}
