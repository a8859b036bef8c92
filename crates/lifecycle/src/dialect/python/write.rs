//! What a Python program assigns.

use ruff_python_ast::visitor::source_order::SourceOrderVisitor as _;
use ruff_python_ast::{Expr, StmtAssign};
use ruff_text_size::Ranged;
use serde_json::Value;

use super::super::{Operand, Target};
use super::summary::constant;
use super::{Reader, elements};

impl Reader<'_> {
    pub(super) fn assign(&mut self, node: &StmtAssign) {
        self.visit_expr(&node.value);
        let value = self.summary(&node.value);
        for target in &node.targets {
            self.visit_expr(target);
            if elements(target).is_some() {
                self.assign_to(target, Some(&node.value));
            } else {
                self.named_lambda(target, &node.value);
                self.assign_value(target, value.clone());
            }
        }
    }

    /// `a, b = x, y` is read pair by pair; any other unpacking gives unknown values.
    pub(super) fn assign_to(&mut self, target: &Expr, value: Option<&Expr>) {
        if let Some(targets) = elements(target) {
            let values = value.and_then(elements).filter(|values| values.len() == targets.len());
            for (index, target) in targets.iter().enumerate() {
                self.assign_to(target, values.and_then(|values| values.get(index)));
            }
            return;
        }
        let value = value.map_or(Operand::Unknown, |value| self.summary(value));
        self.assign_value(target, value);
    }

    pub(super) fn assign_value(&mut self, target: &Expr, value: Operand) {
        let target_kind = if let Expr::Name(name) = target {
            Target::Name(name.id.to_string())
        } else if let Expr::Attribute(node) = target {
            Target::Attribute { object: self.summary(&node.value), name: node.attr.to_string() }
        } else if let Expr::Subscript(node) = target {
            Target::Item { object: self.summary(&node.value), key: constant(&node.slice) }
        } else {
            return;
        };
        self.recorder.assign(target_kind, value, target.start().to_usize());
    }

    /// `x += …` reads what it writes.
    pub(super) fn augmented(&mut self, target: &Expr, value: &Expr) {
        let key = if let Expr::Subscript(node) = target {
            Some((&node.value, constant(&node.slice)))
        } else if let Expr::Attribute(node) = target {
            Some((&node.value, Some(Value::from(node.attr.as_str()))))
        } else {
            None
        };
        if let Some((object, Some(key))) = key {
            let object = self.summary(object);
            self.recorder.lookup(object, key, target.start().to_usize());
        }
        if let Expr::Name(name) = target {
            self.recorder.read(&name.id);
        }
        let added = if target.is_name_expr() { Operand::Unknown } else { self.summary(value) };
        self.assign_value(target, added);
    }

    /// Removing an item or attribute changes its object as assigning it does.
    pub(super) fn delete(&mut self, target: &Expr) {
        self.visit_expr(target);
        if !target.is_name_expr() {
            self.assign_value(target, Operand::Unknown);
        }
    }
}
