//! What Ruby's methods and blocks call what they are given.

use ruby_prism as prism;

use super::super::recorder::without_filled;
use super::super::{Parameter, ParameterKind, Signature};
use super::summary::text;

/// The names of the parameters, and the leading one the harness fills, which is not an input.
pub(super) fn parameters(
    given: Option<&prism::ParametersNode<'_>>,
    may_be_filled: bool,
) -> (Vec<String>, Option<String>) {
    without_filled(given.map(parameter_names).unwrap_or_default(), may_be_filled)
}

/// What a method takes.
pub(super) fn signature(
    given: Option<&prism::ParametersNode<'_>>,
    may_be_filled: bool,
) -> Signature {
    let Some(given) = given else { return Signature::default() };
    let all = [
        (given.requireds(), ParameterKind::Positional, true),
        (given.optionals(), ParameterKind::Positional, false),
        (given.posts(), ParameterKind::Positional, true),
        (given.keywords(), ParameterKind::Keyword, false),
    ];
    let parameters = all.iter().flat_map(|(nodes, kind, required)| {
        nodes.iter().map(|node| {
            let name = parameter_name(&node).map(|name| text(name.as_slice()));
            let required = *required || node.as_required_keyword_parameter_node().is_some();
            Parameter { name: name.unwrap_or_default(), kind: *kind, required }
        })
    });
    let mut parameters: Vec<Parameter> = parameters.collect();
    if let Some(last) = parameters.last_mut().filter(|_| takes_options(given)) {
        last.kind = ParameterKind::Options;
    }
    let (rest, keyword_rest) = (given.rest().is_some(), given.keyword_rest().is_some());
    Signature { parameters, rest, keyword_rest, filled: false }.filled(may_be_filled)
}

/// Whether the last parameter is `options = {}`.
fn takes_options(given: &prism::ParametersNode<'_>) -> bool {
    let follows = given.posts().iter().next().is_some()
        || given.keywords().iter().next().is_some()
        || given.rest().is_some()
        || given.keyword_rest().is_some()
        || given.block().is_some();
    let last = given.optionals().iter().last();
    let default = last.and_then(|node| node.as_optional_parameter_node()).map(|it| it.value());
    let is_empty = |value: &prism::Node<'_>| {
        value.as_hash_node().is_some_and(|hash| hash.elements().iter().next().is_none())
    };
    !follows && default.as_ref().is_some_and(is_empty)
}

fn parameter_names(given: &prism::ParametersNode<'_>) -> Vec<String> {
    let listed = [given.requireds(), given.optionals(), given.posts(), given.keywords()];
    let single = [given.rest(), given.keyword_rest(), given.block()];
    let nodes = listed.iter().flat_map(prism::NodeList::iter).chain(single.into_iter().flatten());
    nodes.filter_map(|node| parameter_name(&node)).map(|name| text(name.as_slice())).collect()
}

fn parameter_name<'pr>(node: &prism::Node<'pr>) -> Option<prism::ConstantId<'pr>> {
    if let Some(node) = node.as_required_parameter_node() {
        Some(node.name())
    } else if let Some(node) = node.as_optional_parameter_node() {
        Some(node.name())
    } else if let Some(node) = node.as_required_keyword_parameter_node() {
        Some(node.name())
    } else if let Some(node) = node.as_optional_keyword_parameter_node() {
        Some(node.name())
    } else if let Some(node) = node.as_rest_parameter_node() {
        node.name()
    } else if let Some(node) = node.as_keyword_rest_parameter_node() {
        node.name()
    } else {
        node.as_block_parameter_node().and_then(|node| node.name())
    }
}

/// The names a block gives its parameters, and whether one of them is destructured.
pub(super) fn block_parameters(block: &prism::BlockNode<'_>) -> (Vec<String>, bool) {
    let Some(parameters) = block.parameters() else { return (Vec::new(), false) };
    if parameters.as_it_parameters_node().is_some() {
        return (vec!["it".to_owned()], false);
    }
    if let Some(numbered) = parameters.as_numbered_parameters_node() {
        return ((1..=numbered.maximum()).map(|number| format!("_{number}")).collect(), false);
    }
    let given = parameters.as_block_parameters_node().and_then(|node| node.parameters());
    let Some(given) = given else { return (Vec::new(), false) };
    let destructured = given.requireds().iter().any(|node| node.as_multi_target_node().is_some());
    (parameter_names(&given), destructured)
}
