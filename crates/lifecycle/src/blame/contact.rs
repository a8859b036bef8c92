//! Failed contacts with services: what they excuse if the program handled them.

use super::classes::{CUT_OFF, DENIED_ERRNO, SERVICE, SERVICE_ERRNO, TIMEOUT};
use super::place::Endpoint;
use super::{Attribution, ERROR_STATUS, GrantedAccess, meant_service, service_at};
use crate::dialect::Inspection;
use crate::provenance::{FailedContact, Observation};
use crate::request::CallRequest;

/// HTTP statuses below 500 by which a service says that another time will do.
const PASSING_STATUS: &[u16] = &[408, 425, 429];
/// The lowest HTTP status by which a service says that it failed itself.
const SERVER_ERROR_STATUS: u16 = 500;

/// What guests call a place that they do not know.
const UNKNOWN_PLACES: &[&str] = &["network", "service"];

/// Whether an error status says that the service cannot answer now, not that the request will not do.
pub(super) fn is_passing(status: u16) -> bool {
    status >= SERVER_ERROR_STATUS || PASSING_STATUS.contains(&status)
}

impl FailedContact {
    pub(super) fn is_of_service(&self) -> bool {
        let raised = &self.exception;
        self.http_status.is_some_and(|status| status >= ERROR_STATUS)
            || raised.is_a(SERVICE)
            || raised.is_a(TIMEOUT)
            || raised.is_a(CUT_OFF)
            || raised.has_errno(SERVICE_ERRNO)
            || self.is_denied()
    }

    /// The place, if the guest knows it.
    fn endpoint(&self) -> Option<Endpoint> {
        let is_known = !UNKNOWN_PLACES.contains(&self.place.as_str());
        is_known.then(|| Endpoint::contacted(&self.place)).filter(|it| !it.host.is_empty())
    }

    fn is_denied(&self) -> bool {
        self.exception.has_errno(DENIED_ERRNO)
    }

    /// Whether it is of the place that an observed source names.
    fn is_of(&self, uri: &str) -> bool {
        let (place, source) = (Endpoint::granted(&self.place), Endpoint::granted(uri));
        place.is_of(&source.host) && (place.port.is_none() || place.port == source.port)
    }
}

impl Observation {
    /// Whether a service failed in a way that passes: it could not be reached, or said that it cannot answer now.
    pub(super) fn has_passing_failure(&self) -> bool {
        let passes = |it: &FailedContact| it.http_status.map_or(it.is_of_service(), is_passing);
        self.failed_contacts.iter().any(passes)
    }

    /// Whether something from outside arrived for certain: another agent's value, or an answer of a place where no
    /// contact failed.
    pub(super) fn has_arrived(&self) -> bool {
        let failed = |uri: &str| self.failed_contacts.iter().any(|it| it.is_of(uri));
        let mut own = self.sources.iter().filter(|source| source.tool.is_none());
        self.agent_answered || own.any(|source| !failed(&source.uri))
    }
}

/// The place of the last such contact that failed.
pub(super) fn last_failed(
    observed: &Observation,
    is_meant: impl Fn(&FailedContact) -> bool,
) -> Option<Endpoint> {
    observed.failed_contacts.iter().rev().find(|it| is_meant(it))?.endpoint()
}

/// The only place that a run reached, if no contact failed.
pub(super) fn only_reached(observed: &Observation) -> Option<Endpoint> {
    let mut own = observed.sources.iter().filter(|source| source.tool.is_none());
    let only = own.next().filter(|_| own.next().is_none())?;
    observed.failed_contacts.is_empty().then(|| Endpoint::contacted(&only.uri))
}

/// The failed contact that a program may have given up because of; `None`: there is none. A new program that received
/// something from elsewhere is not excused. Of a stored one it is in doubt what the failure says: that is
/// [`super::Outside::Answer`].
pub(crate) fn failed_contact(
    request: &CallRequest,
    inspection: &Inspection,
    access: &GrantedAccess,
    observed: &Observation,
    is_new: bool,
) -> Option<Attribution> {
    let contact = observed.failed_contacts.iter().find(|it| it.is_of_service())?;
    let meant = meant_service(contact.endpoint(), request, inspection, observed);
    let chosen = meant.1;
    let found = service_at(meant, request, access, contact.is_denied());
    let granted = matches!(found, Attribution::World { granted: true, .. });
    // The program asked for what the service does not have.
    let is_refusal = chosen && contact.http_status.is_some_and(|status| !is_passing(status));
    match (granted && (is_refusal || observed.has_arrived()), is_new) {
        (true, true) => None,
        (true, false) => Some(found.of_answer()),
        (false, _) => Some(found),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::blame::Outside;
    use crate::dialect::{Language, inspect};
    use crate::execution::ExceptionLink;
    use crate::provenance::ObservedSource;

    const CODE: &str = "import urllib.request\ndef get(url):\n    return None";

    fn refused(place: &str) -> FailedContact {
        let exception =
            ExceptionLink { errno: Some("ECONNREFUSED".to_owned()), ..ExceptionLink::default() };
        FailedContact { place: place.to_owned(), exception, http_status: None }
    }

    fn answered(place: &str, status: u16) -> FailedContact {
        let http_status = Some(status);
        FailedContact { place: place.to_owned(), http_status, ..FailedContact::default() }
    }

    fn reached(uri: &str) -> ObservedSource {
        ObservedSource { uri: uri.to_owned(), fetched_at: String::new(), tool: None }
    }

    /// What a program that was called with `http://shop.example/` may have given up because of: `service`, `answer`, with
    /// `chosen` if the program chose it, or nothing.
    fn found(contacts: &[FailedContact], sources: &[&str], is_new: bool) -> String {
        let mut request = CallRequest::bare("c", "get");
        request.arguments.args = vec![json!("http://shop.example/")];
        let access = GrantedAccess { hosts: None, ..GrantedAccess::default() };
        let observed = Observation {
            failed_contacts: contacts.to_vec(),
            ..Observation::of_sources(sources.iter().map(|uri| reached(uri)))
        };
        let inspection = inspect(Language::Python, CODE).unwrap();
        match failed_contact(&request, &inspection, &access, &observed, is_new) {
            Some(Attribution::World { outside, chosen, .. }) => {
                let what =
                    if matches!(outside, Outside::Answer { .. }) { "answer" } else { "service" };
                format!("{what}{}", if chosen { " chosen" } else { "" })
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn a_failed_contact_excuses_a_program_that_gives_up() {
        let shop = "shop.example:80";
        for (contacts, sources, stored, new) in [
            (vec![], vec![], "None", "None"),
            (vec![refused(shop)], vec![], "service", "service"),
            (vec![answered(shop, 503)], vec![shop], "service", "service"),
            (vec![answered(shop, 200)], vec![shop], "None", "None"),
            // An address of the caller that is missing is a failure of the service; one that the program chose is not.
            (vec![answered(shop, 404)], vec![shop], "service", "service"),
            (
                vec![answered("old.example:80", 404)],
                vec!["old.example:80"],
                "answer chosen",
                "None",
            ),
            (vec![refused("cache.example:80")], vec![], "service chosen", "service chosen"),
            // Something arrived from elsewhere.
            (vec![refused("cache.example:80")], vec![shop], "answer chosen", "None"),
            (vec![refused(shop)], vec!["mirror.example:80"], "answer", "None"),
            // Another port is another place.
            (vec![refused(shop)], vec!["shop.example:443"], "answer", "None"),
        ] {
            assert_eq!(found(&contacts, &sources, false), stored, "{contacts:?} {sources:?}");
            assert_eq!(found(&contacts, &sources, true), new, "{contacts:?} {sources:?}");
        }
    }

    #[test]
    fn some_statuses_pass() {
        for (status, passes) in
            [(404, false), (410, false), (408, true), (429, true), (500, true), (503, true)]
        {
            assert_eq!(is_passing(status), passes, "{status}");
        }
    }
}
