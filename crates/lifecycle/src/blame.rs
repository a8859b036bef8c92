//! Blame: what an exception is attributed to before it is counted or repaired. The world, the caller, or the program.
//!
//! Decided from what the guest reports of the exception (class names, error number, file, the exceptions behind it),
//! never from its message. What a program catches and reports itself is not blamed: it is an answer.

mod classes;
mod contact;
mod place;
#[cfg(test)]
mod tests;

use crate::dialect::library::{CHECKS_FILE, CONVERTS, FILES, NETWORK};
use crate::dialect::{Inspection, Position};
use crate::execution::{ExceptionFacts, ExceptionLink, LinkKind};
use crate::outside_tool::TOOL_ERROR;
use crate::provenance::{FailedContact, Observation};
use crate::request::{Arguments, CallRequest};
use classes::{
    ADDRESS, ARGUMENT, CUT_OFF, DENIED_ERRNO, EXIT, FILE, FILE_ERRNO, FORMAT, GROUP, INVALID_CALLS,
    MISTAKE, REFUSED, REFUSED_ERRNO, SANDBOX_DIRECTORIES, SERVICE, SERVICE_ERRNO, TIMEOUT, VALUE,
};
pub(crate) use contact::failed_contact;
use contact::{is_passing, last_failed, only_reached};
use place::{Endpoint, is_granted, literals, names_path, numbers, path_of, texts, used_texts};

/// The lowest HTTP status that is an error.
const ERROR_STATUS: u16 = 400;

/// What a failure is attributed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// Something outside: a service, a file, a missing grant, another agent. Never counted, never repaired by a model.
    World,
    /// The call: arguments of a shape that the stored program was never accepted with, or a value that it rejects. Not
    /// counted.
    Caller,
    /// The program. Counted, and repaired.
    Program,
}

impl Blame {
    /// The wire name (`blame`).
    pub fn name(self) -> &'static str {
        match self {
            Self::World => "world",
            Self::Caller => "caller",
            Self::Program => "program",
        }
    }
}

/// What an agent's programs may reach outside their sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantedAccess {
    /// Hosts they may connect to; `None`: every host.
    pub hosts: Option<Vec<String>>,
    /// Files and directories they may read or write.
    pub paths: Vec<String>,
    /// Of these, the ones they may change.
    pub writable: Vec<String>,
    /// Relative names by which they find some of these.
    pub names: Vec<String>,
    /// The directory that they run in, if it is not a scratch directory of their own.
    pub workspace: Option<Workspace>,
}

/// A directory that programs run in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    /// Its path.
    pub path: String,
    /// Whether programs may change it.
    pub writable: bool,
    /// Whether programs run as another user than the one who grants it, as those of root do.
    pub is_of_another_user: bool,
}

impl Default for GrantedAccess {
    /// No network and no files.
    fn default() -> Self {
        Self {
            hosts: Some(Vec::new()),
            paths: Vec::new(),
            writable: Vec::new(),
            names: Vec::new(),
            workspace: None,
        }
    }
}

impl GrantedAccess {
    /// Whether programs may connect to anything at all.
    pub fn has_network(&self) -> bool {
        self.hosts.as_ref().is_none_or(|hosts| !hosts.is_empty())
    }

    /// Whether programs may connect to this host, at this port if it is known.
    fn may_connect(&self, host: Option<&str>, port: Option<u16>) -> bool {
        let Some(hosts) = &self.hosts else { return true };
        // Without a name it cannot be said that a host is missing from a list that has some.
        let Some(host) = host else { return !hosts.is_empty() };
        let mut granted = hosts.iter().map(|it| Endpoint::granted(it)).filter(|it| it.is_of(host));
        granted.any(|it| it.port.is_none() || port.is_none() || it.port == port)
    }

    /// Whether some ports of this host are granted.
    fn grants_ports_of(&self, host: &str) -> bool {
        let is_it = |granted: &String| Endpoint::granted(granted).is_of(host);
        self.hosts.iter().flatten().any(is_it)
    }

    /// The granted file or directory that a path is, or is in.
    fn granted_path(&self, path: &str) -> Option<&str> {
        self.paths.iter().find(|granted| is_granted(path, granted)).map(String::as_str)
    }

    /// Whether a granted path may be changed.
    fn may_change(&self, path: &str) -> bool {
        self.writable.iter().any(|granted| is_granted(path, granted))
    }

    /// The workspace, if a path is in it. A relative path is.
    fn workspace_of(&self, path: &str) -> Option<&Workspace> {
        let is_in = |it: &&Workspace| !path.starts_with('/') || is_granted(path, &it.path);
        self.workspace.as_ref().filter(is_in)
    }

    /// Whether a relative path is found, if its file exists.
    fn is_reachable(&self, path: &str) -> bool {
        let path = path.trim_start_matches("./");
        let is_it = |name: &String| {
            path.strip_prefix(name.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.workspace.is_some() || self.names.iter().any(is_it)
    }
}

/// Something outside that a program could not use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outside {
    /// A service: unreachable, or answering with an error.
    Service {
        /// Its host, if the call or the program names one.
        host: Option<String>,
        /// Its port, if only other ports of this host are granted.
        port: Option<u16>,
    },
    /// A file: missing, or not readable.
    File {
        /// Its path, if the guest reports it.
        path: Option<String>,
        /// The granted file or directory, if the path is a relative one of it that is not found.
        granted_as: Option<String>,
        /// Whether it is in a workspace.
        in_workspace: bool,
        /// Whether it may be read, and the program tried to change it.
        is_change: bool,
        /// The workspace, if programs may change it and its permissions shut out the user that they run as.
        shut_out_of: Option<String>,
    },
    /// A service answered, and the stored program cannot use the answer: it may be a passing fault, or a change that the
    /// program must follow.
    Answer {
        /// Its host, if the call or the program names one.
        host: Option<String>,
    },
    /// Another agent's call failed.
    Agent,
}

/// What an exception is attributed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attribution {
    /// The world.
    World {
        /// What could not be used.
        outside: Outside,
        /// Whether the agent may use it at all.
        granted: bool,
        /// Whether the program itself chose it: then another program may choose better.
        chosen: bool,
    },
    /// The caller.
    Caller,
    /// The program.
    Program,
}

impl Attribution {
    /// The same of a service that answers, if it may be used at all.
    fn of_answer(self) -> Self {
        match self {
            Self::World { outside: Outside::Service { host, .. }, granted: true, chosen } => {
                Self::World { outside: Outside::Answer { host }, granted: true, chosen }
            }
            other @ (Self::World { .. } | Self::Caller | Self::Program) => other,
        }
    }
}

/// What is known when a program raises an exception.
#[derive(Debug, Clone, Copy)]
pub struct Incident<'a> {
    /// What the guest reports of it.
    pub facts: &'a ExceptionFacts,
    /// Where it was raised in the program.
    pub location: Option<Position>,
    /// The call.
    pub request: &'a CallRequest,
    /// What the program's syntax tree says.
    pub inspection: &'a Inspection,
    /// What the program may reach.
    pub access: &'a GrantedAccess,
    /// What the run reached.
    pub observed: &'a Observation,
    /// The error type of the program's last call of another agent, if that call failed.
    pub failed_call: Option<&'a str>,
    /// Whether it was accepted with arguments of this shape before; `None`: it is new.
    pub proven: Option<bool>,
}

/// **The blame table.** What an exception is attributed to.
pub fn attribute(incident: &Incident<'_>) -> Attribution {
    let ExceptionFacts { exception, causes, .. } = incident.facts;
    if exception.class_chain.iter().any(|class| class == GROUP) {
        let members = causes.iter().filter(|it| it.kind == LinkKind::Member);
        let found = members.map(|member| incident.attribute_link(member));
        return found.min_by_key(severity).unwrap_or(Attribution::Program);
    }
    incident.attribute_link(incident.decisive_link())
}

/// A file that the call names and that a program which uses files cannot see, because nothing grants it; `None`: there is
/// none. To the program it does not exist, and it may answer so.
pub(crate) fn unseen_file(
    request: &CallRequest,
    inspection: &Inspection,
    access: &GrantedAccess,
) -> Option<String> {
    if !inspection.calls_any(FILES) {
        return None;
    }
    let asks = inspection.calls_any(CHECKS_FILE);
    // A relative path that is only opened may be one of the program's own files.
    let is_unseen = |path: &String| {
        let own = SANDBOX_DIRECTORIES.iter().any(|directory| is_granted(path, directory));
        let may_be_missing = if path.starts_with('/') { !own } else { asks };
        may_be_missing && access.workspace_of(path).is_none() && access.granted_path(path).is_none()
    };
    used_texts(request, inspection).filter_map(path_of).find(is_unseen)
}

/// The host of the service that a program waits for, if the call or the program names one, and whether the program
/// chose it.
pub(crate) fn awaited_host(
    request: &CallRequest,
    inspection: &Inspection,
) -> (Option<String>, bool) {
    let (endpoint, chosen) = named_service(request, inspection);
    (endpoint.map(|it| it.host), chosen)
}

/// Of several exceptions raised together, one that is the program's own fault comes first.
fn severity(attribution: &Attribution) -> u8 {
    match attribution {
        Attribution::Program => 0,
        Attribution::Caller => 1,
        Attribution::World { .. } => 2,
    }
}

impl ExceptionLink {
    /// Whether the exception is of one of these classes.
    fn is_a(&self, known: &[&str]) -> bool {
        let plain = |name: &str| name.strip_prefix("builtins.").unwrap_or(name).to_owned();
        self.class_chain.iter().any(|name| known.contains(&plain(name).as_str()))
    }

    pub(crate) fn has_errno(&self, known: &[&str]) -> bool {
        self.errno.as_deref().is_some_and(|it| known.contains(&it))
    }

    /// A mistake of the program. Ruby's `NoMethodError` is also a `NameError`, and a wrong type causes it.
    fn is_mistake(&self) -> bool {
        self.is_a(MISTAKE) && !self.is_data_error()
    }

    /// An error that values of an unexpected type, value, number or format cause.
    fn is_data_error(&self) -> bool {
        self.is_a(ARGUMENT) || self.is_a(FORMAT)
    }

    /// An error that a value of the right type causes.
    fn is_value_error(&self) -> bool {
        self.is_a(VALUE) || self.is_a(FORMAT)
    }

    /// Whether a service could not be used.
    fn is_of_service(&self) -> bool {
        (self.is_a(SERVICE) && !self.is_a(ADDRESS)) || self.has_errno(SERVICE_ERRNO)
    }

    /// Whether something outside caused it, as far as its class and number say.
    fn is_outside(&self) -> bool {
        self.failed_call.is_some()
            || self.is_of_service()
            || self.is_a(FILE)
            || self.is_a(TIMEOUT)
            || self.has_errno(FILE_ERRNO)
    }
}

impl Incident<'_> {
    /// The exception of the chain that decides. The exception itself does, unless it only passes on another. A class
    /// without a meaning of its own always does. An error of type or value does if the program raises it on purpose,
    /// by a `raise` statement or with a named cause, because of something outside or something that it cannot read;
    /// else it is an error of the handler.
    fn decisive_link(&self) -> &ExceptionLink {
        let mut link = &self.facts.exception;
        let mut is_on_purpose = self.is_raised_on_purpose();
        let mut behind = self.facts.causes.iter();
        while let Some(cause) = behind.next() {
            is_on_purpose |= cause.kind == LinkKind::Named;
            let is_about_outside = |it: &ExceptionLink| it.is_outside() || it.is_a(FORMAT);
            let passes_on =
                is_on_purpose && std::iter::once(cause).chain(behind.clone()).any(is_about_outside);
            if (link.is_data_error() && !passes_on) || link.is_mistake() || link.is_outside() {
                break;
            }
            (link, is_on_purpose) = (cause, false);
        }
        link
    }

    /// Whether a `raise` statement of the program raised the exception, or its call of `exit`.
    fn is_raised_on_purpose(&self) -> bool {
        let Some(class) = self.facts.exception.class_chain.first() else { return false };
        if class == EXIT {
            return true;
        }
        let Some(location) = self.location else { return false };
        self.inspection.raises_at(class, location.line)
    }

    fn attribute_link(&self, link: &ExceptionLink) -> Attribution {
        // A program that gives up by itself after a failed call reports that failure.
        let suspected = self.failed_call.filter(|_| self.is_raised_on_purpose());
        if let Some(code) = link.failed_call.as_deref().or(suspected) {
            // Counted once, at the agent that failed; here only if the call itself was wrong.
            // A call that an outside tool refuses is wrong, unless such calls worked before.
            let is_refused = code == TOOL_ERROR && self.proven != Some(true);
            let is_own = INVALID_CALLS.contains(&code) || is_refused;
            let agent = Attribution::World { outside: Outside::Agent, granted: true, chosen: true };
            return if is_own { Attribution::Program } else { agent };
        }
        let uses_network = self.inspection.calls_any(NETWORK);
        // A server that closes a connection early; a program without network code read a file or its input to the end.
        let is_cut_off = uses_network && link.path.is_none() && link.is_a(CUT_OFF);
        let is_late = uses_network && link.is_a(TIMEOUT);
        if link.is_of_service() || is_cut_off || is_late {
            let found = self.unreached_service(link);
            let is_refusal = self.proven == Some(true) && self.refuses_request(&found);
            return if is_refusal { found.of_answer() } else { found };
        }
        let is_file = link.is_a(FILE) || link.has_errno(FILE_ERRNO);
        if is_file && link.path.is_some() {
            return self.file(link);
        }
        if link.has_errno(DENIED_ERRNO) && (uses_network || !self.access.has_network()) {
            return self.unreached_service(link);
        }
        if is_file {
            return self.file(link);
        }
        if let Some(found) = self.failed_contact(link).or_else(|| self.unread_answer(link)) {
            return found;
        }
        if self.misses_file(link) {
            return self.file(link);
        }
        let gives_up = self.gives_up(link);
        let is_caused_by_arguments = match self.proven {
            None => false,
            Some(false) => link.is_data_error() || gives_up,
            Some(true) => {
                let rejects = gives_up || self.rejects_value(link);
                self.has_arguments() && rejects && !self.has_received()
            }
        };
        if is_caused_by_arguments { Attribution::Caller } else { Attribution::Program }
    }

    /// Whether a program that asks for a file, and raises on purpose, was called with one that it cannot see.
    fn misses_file(&self, link: &ExceptionLink) -> bool {
        let Self { request, inspection, access, .. } = self;
        self.gives_up(link)
            && inspection.calls_any(CHECKS_FILE)
            && unseen_file(request, inspection, access).is_some()
    }

    /// Whether the program raised the exception itself, by a `raise` statement: it gives up on what it was given, of
    /// whatever class the exception is.
    fn gives_up(&self, link: &ExceptionLink) -> bool {
        *link == self.facts.exception && self.is_raised_on_purpose() && !link.is_mistake()
    }

    fn has_arguments(&self) -> bool {
        let Arguments { args, kwargs } = &self.request.arguments;
        !args.is_empty() || !kwargs.is_empty()
    }

    /// Whether the exception says that a value will not do: by its class, or because a conversion raised it.
    fn rejects_value(&self, link: &ExceptionLink) -> bool {
        let converts = |line: u32| {
            let mut calls = self.inspection.calls_with(CONVERTS);
            calls.any(|(call, _)| call.position.line == line)
        };
        let is_conversion =
            || link.is_a(&["TypeError"]) && self.location.is_some_and(|at| converts(at.line));
        link.is_value_error() || is_conversion()
    }

    /// Whether the run received data from outside, which may be what will not do.
    fn has_received(&self) -> bool {
        let Observation { complete, sources, agent_answered, .. } = self.observed;
        let unseen = !complete && self.inspection.calls_any(NETWORK);
        *agent_answered || !sources.is_empty() || unseen
    }

    /// The failed contact with a service because of which the program gives up by itself, after it handled the failure.
    fn failed_contact(&self, link: &ExceptionLink) -> Option<Attribution> {
        let Self { request, inspection, access, observed, .. } = self;
        let found = || failed_contact(request, inspection, access, observed, self.proven.is_none());
        if self.gives_up(link) { found() } else { None }
    }

    /// The service whose answer the exception follows from: an error that the program did not expect, or something that
    /// it cannot read although it was accepted before. A new program may simply read it wrongly.
    fn unread_answer(&self, link: &ExceptionLink) -> Option<Attribution> {
        let is_format = link.is_a(FORMAT);
        let is_proven = self.proven == Some(true);
        let follows = match self.facts.http_status {
            _ if link.is_mistake() => false,
            Some(ERROR_STATUS..) => is_format || is_proven || !link.is_data_error(),
            // Not every guest knows the status of a success, so it says nothing.
            Some(_) | None => is_format && is_proven && self.has_fetched(),
        };
        let found = follows.then(|| self.answering_service(link))?;
        let may_have_changed = match self.facts.http_status {
            Some(ERROR_STATUS..) => self.refuses_request(&found),
            Some(_) | None => !self.observed.has_passing_failure(),
        };
        Some(if is_proven && may_have_changed { found.of_answer() } else { found })
    }

    /// Whether a service that the program chose says that the request will not do. One that the call names may say so
    /// of what the caller asks for.
    fn refuses_request(&self, found: &Attribution) -> bool {
        let status = self.facts.http_status;
        matches!(found, Attribution::World { chosen: true, .. })
            && status.is_some_and(|status| status >= ERROR_STATUS && !is_passing(status))
    }

    /// Whether the program itself reached a host; where connections are not seen, its text decides.
    fn has_fetched(&self) -> bool {
        let Observation { complete, sources, .. } = self.observed;
        let by_itself = sources.iter().any(|source| source.tool.is_none());
        by_itself || (!complete && self.inspection.calls_any(NETWORK))
    }

    /// The service that could not be reached, or that answered with an error.
    fn unreached_service(&self, link: &ExceptionLink) -> Attribution {
        let failed = |it: &FailedContact| it.is_of_service();
        self.service(link, last_failed(self.observed, failed))
    }

    /// The service that answered what the program cannot read.
    fn answering_service(&self, link: &ExceptionLink) -> Attribution {
        let status = self.facts.http_status;
        let failed = |it: &FailedContact| it.http_status.is_some() && it.http_status == status;
        let contacted = last_failed(self.observed, failed).or_else(|| only_reached(self.observed));
        self.service(link, contacted)
    }

    fn service(&self, link: &ExceptionLink, failed: Option<Endpoint>) -> Attribution {
        let meant = meant_service(failed, self.request, self.inspection, self.observed);
        service_at(meant, self.request, self.access, link.has_errno(DENIED_ERRNO))
    }

    fn file(&self, link: &ExceptionLink) -> Attribution {
        let given_path = || texts(self.request).find_map(path_of);
        let path = link.path.clone().or_else(given_path);
        let named = |text: &str| path.as_deref().is_some_and(|path| names_path(text, path));
        let chosen = !texts(self.request).any(named);
        let found = path.as_deref().and_then(|path| self.access.granted_path(path));
        let is_lost = |path: &str| !path.starts_with('/') && !self.access.is_reachable(path);
        let granted_as = found.filter(|_| path.as_deref().is_some_and(is_lost)).map(str::to_owned);
        let workspace = path.as_deref().and_then(|path| self.access.workspace_of(path));
        // Every file of a workspace can be read, so a refusal is one to change it.
        let is_refused = link.has_errno(REFUSED_ERRNO) || link.is_a(REFUSED);
        let is_change = is_refused
            && found.is_some()
            && path.as_deref().is_some_and(|path| !self.access.may_change(path));
        let granted = match workspace {
            Some(workspace) => workspace.writable || !is_refused,
            None => found.is_some() && !is_change,
        };
        let in_workspace = workspace.is_some();
        let shut_out_of = workspace
            .filter(|workspace| is_refused && workspace.writable && workspace.is_of_another_user)
            .map(|workspace| workspace.path.clone());
        let outside = Outside::File { path, granted_as, in_workspace, is_change, shut_out_of };
        Attribution::World { outside, granted, chosen }
    }
}

/// The service at the place where a contact failed, or else the one that the call names, that was reached, or that the
/// program names; and whether the program chose it.
fn meant_service(
    failed: Option<Endpoint>,
    request: &CallRequest,
    inspection: &Inspection,
    observed: &Observation,
) -> (Option<Endpoint>, bool) {
    let Some(place) = failed else {
        let (named, chosen) = named_service(request, inspection);
        let reached = only_reached(observed).filter(|_| chosen);
        return (reached.or(named), chosen);
    };
    let is_it = |named: Endpoint| named.is_of(&place.host) || place.is_of(&named.host);
    let chosen = !texts(request).filter_map(Endpoint::of).any(is_it);
    (Some(place), chosen)
}

/// The service that the call names, or else the program, and whether the program chose it.
fn named_service(request: &CallRequest, inspection: &Inspection) -> (Option<Endpoint>, bool) {
    let given = texts(request).find_map(Endpoint::of);
    let chosen = given.is_none();
    (given.or_else(|| literals(inspection).find_map(Endpoint::of_program)), chosen)
}

/// A service that could not be used, and whether the program chose it. `is_denied`: the sandbox refused the connection.
fn service_at(
    (endpoint, chosen): (Option<Endpoint>, bool),
    request: &CallRequest,
    access: &GrantedAccess,
    is_denied: bool,
) -> Attribution {
    let host = endpoint.as_ref().map(|it| it.host.clone());
    let named_port = endpoint.and_then(|it| it.port);
    let is_refused = is_denied && access.hosts.is_some();
    let granted = !is_refused && access.may_connect(host.as_deref(), named_port);
    let lacks_port = !granted && host.as_deref().is_some_and(|host| access.grants_ports_of(host));
    let port = named_port.or_else(|| numbers(request).find_map(port_of)).filter(|_| lacks_port);
    Attribution::World { outside: Outside::Service { host, port }, granted, chosen }
}

fn port_of(number: u64) -> Option<u16> {
    u16::try_from(number).ok().filter(|port| *port > 0)
}
