//! Fills a store with programs: calls make some, and the others are copies under other names that are imported like the
//! programs of another store.

use std::ops::Range;

use lifecycle::request::{Method, Role};
use recurgent::store::bundle::{ArtifactEntry, Bundle, ToolEntry};
use recurgent::store::prelude::*;
use recurgent::store::sqlite::SqliteStore;

use crate::fixture::{Fixture, call_method};

/// Programs per tool.
pub(crate) const METHODS: usize = 10;
/// Tools imported at once.
const BATCH: usize = 50;
const TEMPLATE: &str = "template";

/// Adds tools with these numbers to the store, each with its programs.
pub(crate) fn add_tools(fixture: &Fixture, tools: Range<usize>) {
    let mut template =
        fixture.agent("tester").delegate(TEMPLATE).purpose("stand here").build().unwrap();
    (0..3).for_each(|_| drop(call_method(&mut template, "check")));
    let store = SqliteStore::open(&fixture.runtime.config().store_path().unwrap()).unwrap();
    let one = store.bundle(Some(&role(TEMPLATE))).unwrap();
    let numbers: Vec<usize> = tools.collect();
    for batch in numbers.chunks(BATCH) {
        let bundle = Bundle {
            tools: batch
                .iter()
                .flat_map(|tool| one.tools.iter().map(|entry| named(entry, *tool)))
                .collect(),
            artifacts: batch.iter().flat_map(|tool| copies(&one, *tool)).collect(),
            ..Bundle::default()
        };
        let taken = store.merge(&bundle).unwrap().taken.len();
        assert_eq!(taken, batch.len() * (1 + METHODS), "the store did not take all");
    }
}

fn named(entry: &ToolEntry, tool: usize) -> ToolEntry {
    ToolEntry { name: numbered(tool), methods: (0..METHODS).map(method).collect(), ..entry.clone() }
}

fn copies(one: &Bundle, tool: usize) -> Vec<ArtifactEntry> {
    let copy = |entry: &ArtifactEntry, number| ArtifactEntry {
        role: numbered(tool),
        method: Method::parse(&method(number)).unwrap(),
        ..entry.clone()
    };
    one.artifacts
        .iter()
        .flat_map(|entry| (0..METHODS).map(move |number| copy(entry, number)))
        .collect()
}

fn method(number: usize) -> String {
    format!("check_{number}")
}

fn numbered(tool: usize) -> Role {
    role(&format!("tool {tool}"))
}

fn role(name: &str) -> Role {
    Role::parse(name).unwrap()
}
