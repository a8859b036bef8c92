//! `recurgent sessions`: memory and history that are kept by name.

use clap::{Args, Subcommand};
use lifecycle::call::StoreFault;
use lifecycle::excerpt::counted;
use lifecycle::request::Role;
use recurgent::store::Owner;
use recurgent::store::catalog::SessionSummary;
use recurgent::store::prelude::*;
use recurgent::store::sqlite::SqliteStore;
use serde_json::{Map, Value, json};

use super::settings::VerbFlags;
use super::store::opened;
use super::trace::full_call_id;
use crate::exit::{CommandFault, Exit};
use crate::render::entry::{LISTED_TIME, time};
use crate::render::paint::{Style, clean};
use crate::render::table::{Column, Table, TableCell, cell, plain};
use crate::render::{self, Stream};

const EXAMPLES: &str = "\
Examples:
  recurgent sessions list
  recurgent sessions show desk
  recurgent sessions history desk --limit 5
  recurgent sessions forget desk draft                  forget one memory key
  recurgent sessions purge desk                         forget its calls, keep its memory
  recurgent sessions rm desk";

/// List, show, purge or remove sessions: memory and history that are kept by name
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SessionsOptions {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    flags: VerbFlags,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List every session with its agents
    List,
    /// Show the memory of a session's agents
    Show {
        /// The session
        name: String,
    },
    /// Show the calls of each agent of a session, oldest first, a page at a time
    History {
        /// The session
        name: String,
        /// Maximum number of calls per agent
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
        /// Only calls before this one; the beginning of its id works
        #[arg(long, value_name = "CALL_ID")]
        before: Option<String>,
    },
    /// Forget one memory key of a session's agents, even one that cannot be read or is too large
    Forget {
        /// The session
        name: String,
        /// The memory key
        key: String,
    },
    /// Forget a session's history and stored contents; its memory stays
    Purge {
        /// The session
        name: String,
    },
    /// Forget a session: its memory, history and stored contents
    Rm {
        /// The session
        name: String,
    },
}

impl SessionsOptions {
    pub(crate) fn run(self) -> Result<Exit, CommandFault> {
        let store = opened(&self.flags.place)?;
        match &self.verb {
            Verb::List => self.list(&store.sessions()?),
            Verb::Show { name } => self.show(&store, name.trim()),
            Verb::History { name, limit, before } => {
                let config = self.flags.place.config(&[])?;
                let before = before.as_deref().map(|id| full_call_id(id, &config)).transpose()?;
                self.history(&store, name.trim(), usize::from(*limit), before.as_deref())
            }
            Verb::Forget { name, key } => self.forget(&store, name.trim(), key),
            Verb::Purge { name } => self.purge(&store, name.trim()),
            Verb::Rm { name } => self.remove(&store, name.trim()),
        }?;
        Ok(Exit::Ok)
    }

    fn list(&self, sessions: &[SessionSummary]) -> Result<(), CommandFault> {
        if self.flags.json {
            let sessions: Vec<Value> = sessions.iter().map(summary_json).collect();
            return render::json(&json!({ "sessions": sessions }));
        }
        if sessions.is_empty() {
            render::notice(
                "no sessions yet; `recurgent call ROLE METHOD --session NAME` makes one",
            );
        }
        let mut table = Table::new(&[
            Column::text("session").shrinks_to(8),
            Column::text("role").shrinks_to(8),
            Column::number("keys"),
            Column::number("calls"),
            Column::text("last written (UTC)").expendable(1),
        ]);
        for session in sessions {
            let written = session.updated_at.get(..16).unwrap_or(&session.updated_at);
            table.row(vec![
                cell(Style::Name, &session.name),
                plain(&session.role),
                plain(session.keys.to_string()),
                plain(session.history_count.to_string()),
                cell(Style::Faint, written.replace('T', " ")),
            ]);
        }
        render::lines(&table.lines(render::room(Stream::Output), render::paint(Stream::Output)))
    }

    fn show(&self, store: &SqliteStore, name: &str) -> Result<(), CommandFault> {
        let agents: Map<String, Value> = store
            .session_context(name)
            .map_err(|fault| unreadable_memory(name, &fault))?
            .into_iter()
            .map(|(role, context)| (role, Value::Object(context.to_object())))
            .collect();
        if agents.is_empty() && !session_names(store)?.iter().any(|session| session == name) {
            return Err(unknown_session(store, name)?);
        }
        if self.flags.json {
            return render::json(&json!({ "name": name, "agents": agents }));
        }
        render::text(&format!("{:#}", Value::Object(agents)))
    }

    fn history(
        &self,
        store: &SqliteStore,
        name: &str,
        limit: usize,
        before: Option<&str>,
    ) -> Result<(), CommandFault> {
        let agents = store.sessions()?.into_iter().filter(|session| session.name == name);
        let mut records = Map::new();
        for agent in agents {
            let role = Role::parse(&agent.role)?;
            let owner = Owner { instance: String::new(), session: Some(name.to_owned()), role };
            let page = store.history(&owner, limit, before)?;
            records.insert(agent.role, Value::Array(page));
        }
        if records.is_empty() {
            return Err(unknown_session(store, name)?);
        }
        if self.flags.json {
            return render::json(&json!({ "name": name, "agents": records }));
        }
        let rows: Vec<Vec<TableCell>> = records
            .iter()
            .flat_map(|(role, page)| page.as_array().into_iter().flatten().map(move |r| (role, r)))
            .map(|(role, record)| history_row(role, record))
            .collect();
        let shown_name = clean(name);
        match before {
            _ if !rows.is_empty() => {}
            Some(call) => render::notice(&format!(
                "no call of session {shown_name} came before {call:?}; omit --before to show its latest calls"
            )),
            None => render::notice(&format!("session {shown_name} has no calls")),
        }
        let mut table = Table::new(&[
            Column::text("time (UTC)").expendable(2),
            Column::text("id"),
            Column::text("call").shrinks_to(12),
            Column::text("status"),
            Column::text("source").shrinks_to(12).expendable(1),
        ]);
        for row in rows {
            table.row(row);
        }
        render::lines(&table.lines(render::room(Stream::Output), render::paint(Stream::Output)))
    }

    fn forget(&self, store: &SqliteStore, name: &str, key: &str) -> Result<(), CommandFault> {
        let Some(agents) = store.forget_memory(name, key)? else {
            return Err(unknown_session(store, name)?);
        };
        if agents == 0 {
            return Err(CommandFault::missing(format!(
                "session {name:?} has no memory key {key:?}; `recurgent sessions show {name}` lists its keys"
            )));
        }
        if self.flags.json {
            return render::json(&json!({ "session": name, "forgotten": key, "agents": agents }));
        }
        render::note(&format!("forgot {} of session {}", clean(key), clean(name)));
        Ok(())
    }

    fn purge(&self, store: &SqliteStore, name: &str) -> Result<(), CommandFault> {
        let Some(records) = store.purge_session(name)? else {
            return Err(unknown_session(store, name)?);
        };
        if self.flags.json {
            return render::json(&json!({ "purged": name, "records": records }));
        }
        let calls = counted(records, "call");
        render::note(&format!("forgot {calls} of session {}", clean(name)));
        Ok(())
    }

    fn remove(&self, store: &SqliteStore, name: &str) -> Result<(), CommandFault> {
        if !store.remove_session(name)? {
            return Err(unknown_session(store, name)?);
        }
        if self.flags.json {
            return render::json(&json!({ "removed": name }));
        }
        render::note(&format!("removed session {}", clean(name)));
        Ok(())
    }
}

/// A row of the history: the time, the id, the call, how it ended, and the source of the answer.
fn history_row(role: &str, record: &Value) -> Vec<TableCell> {
    let text = |path: &str| record.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let status = text("/outcome_summary/status");
    let style = if status == "ok" { Style::Good } else { Style::Bad };
    vec![
        cell(Style::Faint, time(record, LISTED_TIME)),
        cell(Style::Faint, text("/call_id")),
        cell(Style::Name, format!("{role}.{}", text("/method_name"))),
        cell(style, status),
        plain(text("/outcome_summary/primary_uri")),
    ]
}

fn summary_json(session: &SessionSummary) -> Value {
    json!({
        "name": session.name,
        "role": session.role,
        "keys": session.keys,
        "version": session.version,
        "updated_at": session.updated_at,
        "history_count": session.history_count,
    })
}

/// The names of all sessions, each once. The store sorts sessions by name.
fn session_names(store: &SqliteStore) -> Result<Vec<String>, CommandFault> {
    let mut names: Vec<String> =
        store.sessions()?.into_iter().map(|session| session.name).collect();
    names.dedup();
    Ok(names)
}

fn unreadable_memory(name: &str, fault: &StoreFault) -> CommandFault {
    CommandFault::setup(format!(
        "the memory of session {name:?} cannot be read ({fault}); `recurgent store check` names the key, \
         `recurgent sessions forget {name} KEY` removes it, `recurgent sessions rm {name}` removes the session"
    ))
}

fn unknown_session(store: &SqliteStore, name: &str) -> Result<CommandFault, CommandFault> {
    let names = session_names(store)?;
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Ok(CommandFault::missing(format!("no session is named {name:?}; there are: {names}")))
}
