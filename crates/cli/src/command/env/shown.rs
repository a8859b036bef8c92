//! Environments as they are shown.

use std::fmt::Write as _;
use std::time::Duration;

use lifecycle::execution::Environment;
use recurgent::PreparationTicket;
use recurgent::environment::{CacheState, Stored};
use serde_json::{Value, json};

use crate::render::paint::{Style, clean};
use crate::render::table::{Column, Table, TableCell, cell, plain};
use crate::render::{self, Stream};

/// Characters of an id that are shown in a list.
const SHORT_ID: usize = 12;

/// The result of a preparation.
pub(super) fn ticket_json(ticket: &PreparationTicket) -> Value {
    let (status, id) = (ticket.status().name(), ticket.id());
    if let Some(failure) = ticket.failure() {
        return json!({
            "status": status,
            "prep_ticket_id": id,
            "error_type": failure.kind.code(),
            "error_message": failure.message,
            "retriable": failure.kind.retriable(),
            "metadata": failure.metadata,
        });
    }
    let made = ticket.environment().unwrap_or_else(Environment::bare);
    json!({
        "status": status,
        "prep_ticket_id": id,
        "env_id": made.id,
        "root": made.root,
        "dependencies": made.manifest,
        "notes": made.manifest.notes(),
        "environment_cache_hit": made.cache_hit,
        "env_prepare_ms": milliseconds(made.prepare_time),
        "env_resolve_ms": milliseconds(made.resolve_time),
        "env_install_ms": milliseconds(made.install_time),
    })
}

pub(super) fn summary(stored: &Stored) -> Value {
    json!({
        "env_id": stored.id,
        "guest": stored.language.name(),
        "status": stored.standing.name(),
        "in_use": stored.is_in_use(),
        "dependencies": stored.manifest,
        "packages": stored.packages,
        "source_mode": stored.source_mode,
        "sources": stored.sources,
        "root": stored.root,
        "lock_file": stored.lock_file(),
        "prepared_at": stored.prepared_at,
        "last_used_at": stored.last_used(),
        "bytes": stored.bytes,
    })
}

/// Environments, one in a row under a heading.
pub(super) fn table(stored: &[Stored]) -> Vec<String> {
    let mut table = Table::new(&[
        Column::text("guest").expendable(2),
        Column::text("id"),
        Column::text("state"),
        Column::number("size"),
        Column::text("last used (UTC)").expendable(1),
        Column::text("packages").shrinks_to(10),
    ]);
    for stored in stored {
        table.row(row(stored));
    }
    table.lines(render::room(Stream::Output), render::paint(Stream::Output))
}

fn row(stored: &Stored) -> Vec<TableCell> {
    let style = match stored.standing {
        CacheState::Ready => Style::Good,
        CacheState::Building => Style::Warning,
        CacheState::Unfinished | CacheState::Superseded => Style::Faint,
    };
    let packages = stored.manifest.dependencies().iter().map(ToString::to_string);
    vec![
        plain(stored.language.name()),
        cell(Style::Name, short(stored)),
        cell(style, stored.standing.name()),
        plain(render::size(stored.bytes)),
        plain(minute(stored.last_used().as_deref())),
        plain(packages.collect::<Vec<_>>().join(", ")),
    ]
}

pub(super) fn details(stored: &Stored, builds: usize, lock: Option<&str>) -> Vec<String> {
    let paint = render::paint(Stream::Output);
    let in_use = if stored.is_in_use() { ", programs run in it" } else { "" };
    let mut standing = format!("{}{in_use}", stored.standing.name());
    if builds > 1 {
        let _ = write!(standing, ", {builds} builds");
    }
    let facts = [
        ("env_id", stored.id.clone()),
        ("guest", stored.language.name().to_owned()),
        ("status", standing),
        ("size", render::size(stored.bytes)),
        ("prepared", stored.prepared_at.clone().unwrap_or_default()),
        ("last used", stored.last_used().unwrap_or_default()),
        ("sources", format!("{} {}", stored.source_mode, stored.sources.join(" "))),
        ("root", stored.root.display().to_string()),
        ("lock file", stored.lock_file().display().to_string()),
    ];
    let mut lines: Vec<String> = facts
        .iter()
        .filter(|(_, fact)| !fact.trim().is_empty())
        .map(|(name, fact)| {
            format!("{} {}", paint.in_style(Style::Faint, &format!("{name:<10}")), clean(fact))
        })
        .collect();
    let declared: Vec<String> =
        stored.manifest.dependencies().iter().map(ToString::to_string).collect();
    for (title, items) in [("declared", declared), ("packages", stored.packages.clone())] {
        lines.push(paint.in_style(Style::Title, title));
        lines.extend(items.iter().map(|item| format!("  {}", clean(item))));
    }
    lines.push(paint.in_style(Style::Title, "lock"));
    lines.extend(lock.unwrap_or_default().lines().map(|line| format!("  {}", clean(line))));
    lines
}

pub(super) fn short(stored: &Stored) -> &str {
    stored.id.get(..SHORT_ID).unwrap_or(&stored.id)
}

/// `2026-11-15 18:51`
fn minute(time: Option<&str>) -> String {
    time.and_then(|time| time.get(..16)).unwrap_or_default().replace('T', " ")
}

pub(super) fn counted(environments: usize) -> String {
    match environments {
        1 => "1 environment".to_owned(),
        several => format!("{several} environments"),
    }
}

pub(super) fn total(stored: &[Stored]) -> u64 {
    stored.iter().map(|stored| stored.bytes).sum()
}

fn milliseconds(took: Duration) -> f64 {
    (took.as_secs_f64() * 10_000.0).round() / 10.0
}
