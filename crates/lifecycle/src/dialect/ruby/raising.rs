//! Calls of `raise`.

use ruby_prism as prism;

use super::Reader;
use super::summary::text;
use crate::dialect::raising::RaiseStatement;

/// The class of what `raise "text"` raises.
const DEFAULT_CLASS: &str = "RuntimeError";

impl<'pr> Reader<'_> {
    /// Records a call that raises something new; a bare `raise` passes on what is handled.
    pub(super) fn raises(&mut self, node: &prism::CallNode<'pr>) {
        let is_raise =
            node.receiver().is_none() && matches!(node.name().as_slice(), b"raise" | b"fail");
        let Some(arguments) = node.arguments().filter(|_| is_raise) else { return };
        let Some(raised) = arguments.arguments().iter().next() else { return };
        let place = node.location();
        let line = |number: i32| u32::try_from(number).unwrap_or_default();
        let lines = line(place.start_line())..=line(place.end_line());
        self.recorder.found.raises.push(RaiseStatement { class: class(&raised), lines });
    }
}

/// The class of what is raised, if it is written there.
fn class(raised: &prism::Node<'_>) -> Option<String> {
    if let Some(constant) = raised.as_constant_read_node() {
        return Some(text(constant.name().as_slice()));
    }
    if let Some(path) = raised.as_constant_path_node() {
        return path.name().map(|name| text(name.as_slice()));
    }
    if raised.as_string_node().is_some() || raised.as_interpolated_string_node().is_some() {
        return Some(DEFAULT_CLASS.to_owned());
    }
    let call = raised.as_call_node()?;
    let makes = matches!(call.name().as_slice(), b"new" | b"exception");
    call.receiver().filter(|_| makes).and_then(|receiver| class(&receiver))
}
