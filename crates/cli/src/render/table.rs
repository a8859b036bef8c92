//! Tables: aligned columns under a heading, as wide as there is room.

use super::Room;
use super::paint::{Paint, Style, clean, clip, columns};

/// Columns between two cells.
const GAP: usize = 2;
/// Fewest columns that a text is cut to if the output need not fit a terminal.
const MIN_COLUMNS_UNBOUND: usize = 40;

/// Where the text of a column stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A column of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    title: &'static str,
    align: Align,
    /// The fewest terminal columns it may shrink to; `None`: it is never cut.
    shrinks_to: Option<usize>,
    /// When it is left out of a table that does not fit: the highest first; 0: never.
    expendable: u8,
}

impl Column {
    pub(crate) const fn text(title: &'static str) -> Self {
        Self { title, align: Align::Left, shrinks_to: None, expendable: 0 }
    }

    pub(crate) const fn number(title: &'static str) -> Self {
        Self { align: Align::Right, ..Self::text(title) }
    }

    /// May be cut, to no less than this.
    pub(crate) const fn shrinks_to(self, least: usize) -> Self {
        Self { shrinks_to: Some(least), ..self }
    }

    /// May be left out; columns with a higher rank are left out before.
    pub(crate) const fn expendable(self, rank: u8) -> Self {
        Self { expendable: rank, ..self }
    }
}

/// The text of a cell, without control characters, and its style.
#[derive(Debug, Clone)]
pub(crate) struct TableCell {
    text: String,
    style: Option<Style>,
}

/// A cell in a style.
pub(crate) fn cell(style: Style, text: impl AsRef<str>) -> TableCell {
    TableCell { text: clean(text.as_ref()), style: Some(style) }
}

/// A cell without a style.
pub(crate) fn plain(text: impl AsRef<str>) -> TableCell {
    TableCell { text: clean(text.as_ref()), style: None }
}

/// Rows of cells, one for each column.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<TableCell>>,
}

impl Table {
    pub(crate) fn new(columns: &[Column]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<TableCell>) {
        self.rows.push(cells);
    }

    /// Its heading and rows; none if there are no rows.
    pub(crate) fn lines(mut self, room: Room, paint: Paint) -> Vec<String> {
        if self.rows.is_empty() {
            return Vec::new();
        }
        let widths = self.fit(room);
        let heading: Vec<TableCell> =
            self.columns.iter().map(|column| cell(Style::Faint, column.title)).collect();
        std::iter::once(&heading)
            .chain(&self.rows)
            .map(|row| self.line(row, &widths, paint))
            .collect()
    }

    /// The width of each column. Leaves out expendable columns if the others do not fit at their least width.
    fn fit(&mut self, room: Room) -> Vec<usize> {
        loop {
            let widths = self.natural_widths();
            let least: usize = (self.columns.iter().zip(&widths))
                .map(|(column, width)| column.shrinks_to.map_or(*width, |least| least.min(*width)))
                .sum();
            let gaps = GAP * self.columns.len().saturating_sub(1);
            let last = self.columns.iter().enumerate().max_by_key(|(_, it)| it.expendable);
            match last.filter(|(_, column)| column.expendable > 0) {
                Some((index, _)) if room.is_limited && least + gaps > room.columns => {
                    self.leave_out(index);
                }
                Some(_) | None => {
                    return shrunk(
                        &self.columns,
                        widths,
                        Room { columns: room.columns.saturating_sub(gaps), ..room },
                    );
                }
            }
        }
    }

    fn leave_out(&mut self, index: usize) {
        self.columns.remove(index);
        for row in &mut self.rows {
            if index < row.len() {
                row.remove(index);
            }
        }
    }

    fn natural_widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.columns.iter().map(|it| columns(it.title)).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = columns(&cell.text).max(*width);
            }
        }
        widths
    }

    fn line(&self, row: &[TableCell], widths: &[usize], paint: Paint) -> String {
        let cells = row.iter().zip(&self.columns).zip(widths).map(|((cell, column), width)| {
            let text = clip(&cell.text, *width);
            let gap = " ".repeat(width.saturating_sub(columns(&text)));
            let text =
                cell.style.map_or_else(|| text.clone(), |style| paint.in_style(style, &text));
            match column.align {
                Align::Left => format!("{text}{gap}"),
                Align::Right => format!("{gap}{text}"),
            }
        });
        cells.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end().to_owned()
    }
}

/// Takes columns from the widest of those that may be cut, until all fit or none can give more.
fn shrunk(kinds: &[Column], mut widths: Vec<usize>, room: Room) -> Vec<usize> {
    let least = if room.is_limited { 0 } else { MIN_COLUMNS_UNBOUND };
    let mut excess = widths.iter().sum::<usize>().saturating_sub(room.columns);
    while excess > 0 {
        let can_give = |(width, column): &(&mut usize, &Column)| {
            column.shrinks_to.is_some_and(|own| **width > own.max(least))
        };
        let widest = widths.iter_mut().zip(kinds).filter(can_give).max_by_key(|(width, _)| **width);
        let Some((width, _)) = widest else { break };
        *width -= 1;
        excess -= 1;
    }
    widths
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Paint = Paint { colour: false };

    fn shown(columns: usize, is_limited: bool) -> Vec<String> {
        let mut table = Table::new(&[
            Column::text("id"),
            Column::text("call").shrinks_to(6),
            Column::number("took").expendable(1),
            Column::number("cost").expendable(2),
        ]);
        table.row(vec![
            plain("a1"),
            plain("guide.films(\"東京\")"),
            plain("12 ms"),
            plain("$0.01"),
        ]);
        table.row(vec![plain("b2"), plain("x\u{1b}.y()"), plain("1.2 s"), plain("")]);
        table.lines(Room { columns, is_limited }, PLAIN)
    }

    #[test]
    fn columns_are_aligned_then_cut_then_left_out() {
        assert_eq!(
            shown(40, true),
            [
                "id  call                  took   cost",
                "a1  guide.films(\"東京\")  12 ms  $0.01",
                "b2  x\u{fffd}.y()               1.2 s",
            ]
        );
        assert_eq!(shown(28, true)[1], "a1  guide.fil…  12 ms  $0.01");
        assert_eq!(shown(20, true)[0], "id  call        took");
        assert_eq!(shown(12, true)[1], "a1  guide.f…");
        assert_eq!(shown(12, false), shown(40, true), "a program may read it");
        assert_eq!(
            Table::new(&[Column::text("id")]).lines(Room { columns: 9, is_limited: true }, PLAIN),
            [""; 0]
        );
    }
}
