//! Statements whose value is not meant: they only print.

use ruby_prism as prism;

use super::summary::constant_path;

/// Functions that print and give nothing. `p` and `pp` give what they print.
const PRINTING: [&[u8]; 4] = [b"print", b"printf", b"putc", b"puts"];
/// Methods of a stream that print, and give a count.
const WRITING: [&[u8]; 2] = [b"write", b"syswrite"];
/// Functions that print, in a block whose value is dropped.
const SHOWING: [&[u8]; 2] = [b"p", b"pp"];
/// Iterators that give what they iterate over.
const ITERATORS: [&[u8]; 12] = [
    b"cycle",
    b"downto",
    b"each",
    b"each_char",
    b"each_entry",
    b"each_key",
    b"each_line",
    b"each_pair",
    b"each_value",
    b"each_with_index",
    b"times",
    b"upto",
];

/// Whether the last of these statements only prints: a print, a branch that prints either way, or an iteration whose
/// block does nothing else.
pub(super) fn only_prints(node: &prism::Node<'_>) -> bool {
    if let Some(statements) = node.as_statements_node() {
        return statements.body().last().is_some_and(|last| only_prints(&last));
    }
    if let Some(node) = node.as_parentheses_node() {
        return node.body().is_some_and(|body| only_prints(&body));
    }
    if let Some(node) = node.as_if_node() {
        let body = node.statements().is_some_and(|body| only_prints(&body.as_node()));
        return body && node.subsequent().is_none_or(|otherwise| only_prints(&otherwise));
    }
    if let Some(node) = node.as_unless_node() {
        let body = node.statements().is_some_and(|body| only_prints(&body.as_node()));
        return body && node.else_clause().is_none_or(|it| only_prints(&it.as_node()));
    }
    if let Some(node) = node.as_else_node() {
        return node.statements().is_some_and(|body| only_prints(&body.as_node()));
    }
    node.as_call_node().is_some_and(|call| {
        let writes = || call.receiver().is_some() && prints(&call, &WRITING);
        prints(&call, &PRINTING) || writes() || iterates_printing(&call)
    })
}

fn prints(call: &prism::CallNode<'_>, names: &[&[u8]]) -> bool {
    let is_output = call.receiver().is_none_or(|receiver| {
        let global = receiver.as_global_variable_read_node();
        global.is_some_and(|it| it.name().as_slice() == b"$stdout")
            || constant_path(&receiver) == "STDOUT"
    });
    is_output && names.contains(&call.name().as_slice())
}

/// `rows.each { |row| puts row }`: the block prints and does nothing else.
fn iterates_printing(call: &prism::CallNode<'_>) -> bool {
    let is_printing = |node: prism::Node<'_>| {
        let call = node.as_call_node();
        call.is_some_and(|call| prints(&call, &PRINTING) || prints(&call, &SHOWING))
    };
    let body = call.block().and_then(|block| block.as_block_node()).and_then(|it| it.body());
    let statements = body.and_then(|body| body.as_statements_node());
    ITERATORS.contains(&call.name().as_slice())
        && statements.is_some_and(|it| it.body().iter().all(is_printing))
}
