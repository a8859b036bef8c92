//! Listing, approving and testing servers.

use std::sync::Arc;

use lifecycle::request::Arguments;
use mcp::{McpServer, ServerReport, Servers};
use recurgent::Cancellation;
use recurgent::config::{Config, McpTransport};
use recurgent::grants::ToolGrant;
use recurgent::toolbox::{OutsideTool, ToolFault, ToolLimits, Toolbox as _, signature};
use serde_json::{Value, json};

use super::TestArgs;
use crate::exit::{CommandFault, Exit};
use crate::render::paint::{Style, clean};
use crate::render::table::{Column, Table, cell, plain};
use crate::render::{self, Stream};

/// Characters of a description that are shown.
const DESCRIPTION_CHARS: usize = 72;
/// Characters of a digest that are shown.
const SHORT_DIGEST: usize = 19;

fn servers(config: &Config) -> Result<Servers, CommandFault> {
    Ok(Servers::of(config)?)
}

fn found(servers: &Servers, name: &str) -> Result<Arc<McpServer>, CommandFault> {
    let server = servers.servers.iter().find(|server| server.name() == name).cloned();
    server.ok_or_else(|| {
        let known: Vec<&str> = servers.servers.iter().map(|server| server.name()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        CommandFault::missing(format!(
            "no server is named {name:?}; there are: {known}; `recurgent mcp add` adds one"
        ))
    })
}

fn unusable(name: &str, fault: &ToolFault) -> CommandFault {
    CommandFault::failed(format!("the server {name} cannot be used: {fault}"))
}

fn report(config: &Config, server: &McpServer) -> Result<ServerReport, CommandFault> {
    let cancellation = Cancellation::default();
    let timeout = server.options().start_timeout.max(config.settings().tool_timeout_seconds);
    let limits = ToolLimits { timeout, cancellation: &cancellation };
    server.report(&limits).map_err(|fault| unusable(server.name(), &fault))
}

fn is_granted(grant: &ToolGrant, name: &str) -> bool {
    match grant {
        ToolGrant::All => true,
        ToolGrant::Named(names) => names.iter().any(|it| it.split('.').next() == Some(name)),
        ToolGrant::Functions | ToolGrant::NamedFunctions(_) | ToolGrant::Nothing => false,
    }
}

pub(super) fn list(config: &Config, as_json: bool) -> Result<Exit, CommandFault> {
    let servers = servers(config)?;
    let grant = &config.settings().tools;
    let entry = |server: &Arc<McpServer>| {
        let approved = server.approved();
        let state = match &approved {
            Ok(Some(_)) => "approved",
            Ok(None) => "not used yet",
            Err(_) => "must be approved",
        };
        let pin = approved.ok().flatten();
        let kind = match &server.options().transport {
            McpTransport::Stdio { .. } if server.options().uncontained => "process, no sandbox",
            McpTransport::Stdio { .. } => "process",
            McpTransport::Http { .. } => "http",
        };
        json!({
            "name": server.name(),
            "kind": kind,
            "place": server.place(),
            "state": state,
            "methods": pin.as_ref().map(|pin| pin.tool.methods.len()),
            "digest": pin.as_ref().map(|pin| &pin.digest),
            "granted": is_granted(grant, server.name()),
        })
    };
    let entries: Vec<Value> = servers.servers.iter().map(entry).collect();
    if as_json {
        render::json(&json!({ "servers": entries, "notes": servers.notes }))?;
        return Ok(Exit::Ok);
    }
    servers.notes.iter().for_each(|note| render::notice(&clean(note)));
    if entries.is_empty() {
        render::notice("no servers yet; `recurgent mcp add NAME -- COMMAND` adds one");
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(&[
        Column::text("server").shrinks_to(8),
        Column::text("kind").expendable(1),
        Column::text("place").shrinks_to(8),
        Column::text("state"),
        Column::number("methods").expendable(3),
        Column::text("granted").expendable(2),
    ]);
    for entry in &entries {
        let text = |key: &str| clean(entry.get(key).and_then(Value::as_str).unwrap_or_default());
        let methods = entry.get("methods").and_then(Value::as_u64);
        let granted = entry.get("granted").and_then(Value::as_bool).unwrap_or_default();
        table.row(vec![
            cell(Style::Name, text("name")),
            plain(text("kind")),
            cell(Style::Faint, text("place")),
            plain(text("state")),
            plain(methods.map(|count| count.to_string()).unwrap_or_default()),
            plain(if granted { "yes" } else { "no" }),
        ]);
    }
    render::lines(&table.lines(render::room(Stream::Output), render::paint(Stream::Output)))?;
    Ok(Exit::Ok)
}

pub(super) fn approve(config: &Config, name: &str, as_json: bool) -> Result<Exit, CommandFault> {
    let servers = servers(config)?;
    let server = found(&servers, name)?;
    let report = report(config, &server)?;
    server.approve(&report).map_err(|fault| unusable(name, &fault))?;
    if as_json {
        render::json(&json!({
            "status": "ok", "server": name, "digest": report.tool.digest().as_str(), "changes": report.changes(),
        }))?;
    } else {
        render::lines(&lines(&report))?;
        render::notice(&format!("approved {name}"));
    }
    Ok(Exit::Ok)
}

pub(super) fn test(config: &Config, args: &TestArgs, as_json: bool) -> Result<Exit, CommandFault> {
    let servers = servers(config)?;
    let server = found(&servers, &args.name)?;
    let report = report(config, &server)?;
    if let Some(method) = &args.call {
        return call(config, &server, &report, (method, args.args.as_deref()), as_json);
    }
    if as_json {
        render::json(&json!({
            "server": server.name(),
            "revision": report.revision,
            "digest": report.tool.digest().as_str(),
            "approved": report.approved.as_ref().map(|tool| tool.digest().as_str().to_owned()),
            "changes": report.changes(),
            "methods": report.tool.methods,
            "notes": report.tool.notes,
            "milliseconds": report.took.as_secs_f64() * 1000.0,
        }))?;
    } else {
        render::lines(&lines(&report))?;
        if !report.changes().is_empty() {
            render::notice(&format!(
                "its tools are not as they were approved; `recurgent mcp approve {}` accepts them",
                server.name()
            ));
        }
    }
    Ok(if report.changes().is_empty() { Exit::Ok } else { Exit::Failed })
}

fn call(
    config: &Config,
    server: &McpServer,
    report: &ServerReport,
    (method, given): (&str, Option<&str>),
    as_json: bool,
) -> Result<Exit, CommandFault> {
    let kwargs = match serde_json::from_str(given.unwrap_or("{}")) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) => return Err(CommandFault::usage("--args must be a JSON object")),
        Err(error) => return Err(CommandFault::usage(format!("--args is not JSON: {error}"))),
    };
    let misfit =
        |misfit: lifecycle::outside_tool::MisfitArguments| CommandFault::usage(misfit.to_string());
    let method = report.tool.method(method).map_err(misfit)?;
    let arguments = method.arguments(Arguments { args: Vec::new(), kwargs }).map_err(misfit)?;
    let cancellation = Cancellation::default();
    let timeout = config.settings().tool_timeout_seconds;
    let limits = ToolLimits { timeout, cancellation: &cancellation };
    let result = server.call(method, arguments, &limits);
    let value = result.map_err(|fault| unusable(server.name(), &fault))?;
    if as_json {
        render::json(&json!({"status": "ok", "value": value}))?;
    } else {
        render::text(&clean(&format!("{value:#}")))?;
    }
    Ok(Exit::Ok)
}

/// What a server offers.
fn lines(report: &ServerReport) -> Vec<String> {
    let paint = render::paint(Stream::Output);
    let OutsideTool { name, methods, notes, .. } = &report.tool;
    let digest: String = report.tool.digest().as_str().chars().take(SHORT_DIGEST).collect();
    let revision = report.revision.as_deref().unwrap_or("an unknown revision");
    let heading = format!("{} methods, MCP {}, {digest}", methods.len(), clean(revision));
    let mut lines = vec![format!(
        "{}  {}",
        paint.in_style(Style::Name, name),
        paint.in_style(Style::Faint, &heading)
    )];
    for method in methods {
        let reads = if method.reads_only { "  (reads only)" } else { "" };
        lines.push(format!(
            "  {}{}",
            clean(&signature(method)),
            paint.in_style(Style::Faint, reads)
        ));
        let does = recurgent::toolbox::plain(&method.description, DESCRIPTION_CHARS);
        if !does.is_empty() {
            lines.push(format!("      {}", paint.in_style(Style::Faint, &clean(&does))));
        }
    }
    let warning = |text: &String| format!("  {}", paint.in_style(Style::Warning, &clean(text)));
    lines.extend(notes.iter().map(warning));
    lines.extend(report.changes().iter().map(warning));
    lines
}
