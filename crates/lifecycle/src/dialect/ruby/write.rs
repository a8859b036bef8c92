//! What a Ruby program assigns, in the many ways it can.

use ruby_prism as prism;
use serde_json::Value;

use super::super::{Operand, Target};
use super::summary::{constant, text};
use super::{Reader, is_keyed};

/// A name is given a value: one row per kind of node, and what becomes of the name.
macro_rules! writes {
    ($($method:ident: $node:ident => $kind:ident,)*) => {$(
        fn $method(&mut self, node: &prism::$node<'pr>) {
            self.visit(&node.value());
            let (name, at) = (text(node.name().as_slice()), self.at(&node.location()));
            self.$kind(name, &node.value(), at);
        }
    )*};
}

/// An item or attribute is read and written at once (`||=`, `&&=`, `+=`): one row per kind of node, with where its
/// key stands and whether what it becomes is what is given.
macro_rules! updates {
    ($($method:ident: $node:ident, $kind:ident($key:ident, $value:ident),)*) => {$(
        fn $method(&mut self, node: &prism::$node<'pr>) {
            prism::$method(self, node);
            let value = updates!(@$value self, node);
            if let Some(receiver) = node.receiver() {
                self.$kind(&receiver, updates!(@$key node), value, self.at(&node.location()));
            }
        }
    )*};
    (@arguments $node:ident) => { $node.arguments().as_ref() };
    (@read_name $node:ident) => { &$node.read_name() };
    (@given $self:ident, $node:ident) => { $self.summary(&$node.value()) };
    (@unknown $self:ident, $node:ident) => { Operand::Unknown };
}

pub(super) use {updates, writes};

impl<'pr> Reader<'_> {
    pub(super) fn name_write(&mut self, name: String, value: &prism::Node<'pr>, offset: usize) {
        let value = self.summary(value);
        self.recorder.assign(Target::Name(name), value, offset);
    }

    /// `x ||= …`: a default for an input, or for what memory has, is a default; for anything else it stands in for data.
    pub(super) fn name_default(&mut self, name: String, value: &prism::Node<'pr>, offset: usize) {
        self.recorder.read(&name);
        let value = self.summary(value);
        let is_default = self.recorder.is_input(&name)
            || self.recorder.is_remembered(&self.recorder.variable(&name));
        let value = if is_default { value } else { value.into_fallback() };
        self.recorder.assign(Target::Name(name), value, offset);
    }

    /// `x += …` reads what it writes, and its value is unknown.
    pub(super) fn name_update(&mut self, name: String, _: &prism::Node<'pr>, offset: usize) {
        self.recorder.read(&name);
        self.recorder.assign(Target::Name(name), Operand::Unknown, offset);
    }

    /// An attribute or item write, which prism takes for a call of `name=` or `[]=`.
    pub(super) fn attribute_write(&mut self, node: &prism::CallNode<'pr>, name: &str) {
        let Some(receiver) = node.receiver() else { return };
        let given: Vec<_> = node.arguments().iter().flat_map(|a| a.arguments().iter()).collect();
        let Some((value, keys)) = given.split_last() else { return };
        let object = self.summary(&receiver);
        let value = self.summary(value);
        let target = if name == "[]=" {
            Target::Item { object, key: keys.first().and_then(constant) }
        } else {
            Target::Attribute { object, name: name.trim_end_matches('=').to_owned() }
        };
        self.recorder.assign(target, value, self.at(&node.location()));
    }

    /// `x[k] ||= …`, `x[k] += …`: reads and writes.
    pub(super) fn item_update(
        &mut self,
        receiver: &prism::Node<'pr>,
        arguments: Option<&prism::ArgumentsNode<'pr>>,
        value: Operand,
        offset: usize,
    ) {
        let (object, key) = (self.summary(receiver), key(arguments));
        if let Some(key) = key.clone() {
            self.recorder.lookup(object.clone(), key, offset);
        }
        self.recorder.assign(Target::Item { object, key }, value, offset);
    }

    /// `x.k ||= …`, `x.k += …`: reads and writes.
    pub(super) fn attribute_update(
        &mut self,
        receiver: &prism::Node<'pr>,
        name: &prism::ConstantId<'pr>,
        value: Operand,
        offset: usize,
    ) {
        let (object, name) = (self.summary(receiver), text(name.as_slice()));
        if is_keyed(&object) {
            self.recorder.lookup(object.clone(), Value::from(name.as_str()), offset);
        }
        self.recorder.assign(Target::Attribute { object, name }, value, offset);
    }
}

/// The constant key an item stands under.
pub(super) fn key(arguments: Option<&prism::ArgumentsNode<'_>>) -> Option<Value> {
    arguments?.arguments().first().as_ref().and_then(constant)
}

/// `object.name`, by the name it is written by.
pub(super) fn attribute(object: Operand, name: &prism::ConstantId<'_>) -> Target {
    let name = text(name.as_slice()).trim_end_matches('=').to_owned();
    Target::Attribute { object, name }
}
