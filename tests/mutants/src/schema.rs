//! Writes all mutants of a file into its source, each behind its number.
//!
//! An expression becomes `(if crate::mutant::is(NUMBER) { the mutant } else { the source })`. A run without a selected mutant behaves
//! like the source, and records which mutants a test reaches.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use anyhow::{Context as _, Result};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Block, Expr, Pat, ReturnType, Signature, Stmt, Type};

use crate::list::{Genre, Mutant};

/// A file with its mutants in it.
pub(crate) struct Schema {
    pub(crate) text: String,
    /// The bytes of each mutant in the new text, and the offset of the condition that selects it.
    places: Vec<(Range<usize>, usize)>,
}

impl Schema {
    /// Writes `mutants` into `source`. A const fn becomes an ordinary fn, because it cannot read an environment variable,
    /// unless it is named in `constant`.
    ///
    /// # Errors
    /// If the source is not Rust.
    pub(crate) fn new(source: &str, mutants: &[&Mutant], constant: &BTreeSet<String>) -> Result<Self> {
        let file = syn::parse_file(source).context("parse")?;
        let lines: Vec<usize> = std::iter::once(0).chain(source.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let mut pending: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for mutant in mutants {
            let range = mutant.span.bytes(source, &lines).context("a place beyond the end")?;
            pending.entry((mutant.genre, range.start)).or_default().push((*mutant, range));
        }
        let mut weaver = Instrumenter { source, constant, pending, edits: Vec::new() };
        weaver.visit_file(&file);
        Ok(weaver.finish())
    }

    /// All mutants that have a place in the text.
    pub(crate) fn mutants(&self) -> impl Iterator<Item = usize> {
        self.places.iter().map(|(_, mutant)| *mutant)
    }

    /// The mutant with the smallest range around a byte of the text, or around the next one: a signature comes before the first mutant of its
    /// function.
    pub(crate) fn at(&self, byte: usize) -> Option<usize> {
        let around = self.places.iter().filter(|(range, _)| range.contains(&byte));
        let next = self.places.iter().filter(|(range, _)| range.start > byte);
        let smallest = around.min_by_key(|(range, _)| range.len());
        smallest.or_else(|| next.min_by_key(|(range, _)| range.start)).map(|(_, mutant)| *mutant)
    }
}

struct Edit {
    /// The bytes that it removes; mostly none.
    range: Range<usize>,
    text: String,
    /// Orders edits at one byte: ends first, the inner before the outer, then starts, the outer before the inner.
    rank: (bool, isize, isize),
    opens: Option<usize>,
    closes: Option<usize>,
}

/// A mutant with the bytes of the source that it replaces.
type Placed<'a> = (&'a Mutant, Range<usize>);

struct Instrumenter<'a> {
    source: &'a str,
    constant: &'a BTreeSet<String>,
    pending: BTreeMap<(Genre, usize), Vec<Placed<'a>>>,
    edits: Vec<Edit>,
}

fn bytes(node: &impl Spanned) -> Range<usize> {
    node.span().byte_range()
}

impl<'a> Instrumenter<'a> {
    fn take_placed(&mut self, genre: Genre, node: &impl Spanned) -> Vec<Placed<'a>> {
        self.pending.remove(&(genre, bytes(node).start)).unwrap_or_default()
    }

    fn put(&mut self, at: &Range<usize>, before: String, after: &str, mutant: usize) {
        let turn = self.edits.len().cast_signed();
        let (start, end) = (at.start.cast_signed(), at.end.cast_signed());
        let (first, last) = ((true, -end, turn), (false, -start, -turn));
        let (opens, closes) = (Some(mutant), None);
        self.edits.push(Edit { range: at.start..at.start, text: before, rank: first, opens, closes });
        let after = after.to_owned();
        self.edits.push(Edit { range: at.end..at.end, text: after, rank: last, opens: closes, closes: opens });
    }

    /// Emits `node` unchanged, or with its mutants.
    fn choose(&mut self, node: &impl Spanned, mutants: Vec<Placed<'_>>) {
        self.choose_in(&bytes(node), mutants);
    }

    fn choose_in(&mut self, whole: &Range<usize>, mutants: Vec<Placed<'_>>) {
        for (Mutant { number, replacement, .. }, range) in mutants {
            let part = |range| self.source.get(range).unwrap_or_default();
            let (start, end) = (part(whole.start..range.start), part(range.end..whole.end));
            let before = format!("(if crate::mutant::is({number}) {{ {start}{replacement}{end} }} else {{ ");
            self.put(whole, before, " })", *number);
        }
    }

    fn arm(&mut self, arm: &syn::Arm, deletable: bool) {
        for (Mutant { number, .. }, _) in self.take_placed(Genre::MatchArm, arm).into_iter().filter(|_| deletable) {
            let end = bytes(&arm.pat).end;
            self.put(&(end..end), format!(" if !crate::mutant::is({number})"), "", *number);
        }
        let Some((_, guard)) = &arm.guard else { return };
        let mut mutants = self.take_placed(Genre::MatchArmGuard, guard);
        if has_let(guard) {
            // What the arm binds cannot be used if `true` replaces the guard.
            mutants.retain(|(mutant, _)| mutant.replacement == "false");
            for (Mutant { number, .. }, range) in mutants {
                self.put(&range, format!("!crate::mutant::is({number}) && "), "", *number);
            }
        } else {
            self.choose(guard, mutants);
        }
    }

    /// The mutants that return immediately, and then those `within`.
    fn function(&mut self, signature: &Signature, block: &Block, within: impl FnOnce(&mut Self)) {
        let before = self.edits.len();
        let whole = bytes(block);
        let slips = self.pending.extract_if((Genre::Slip, whole.start)..=(Genre::Slip, whole.end), |_, _| true);
        for slip in slips.flat_map(|(_, slips)| slips).collect::<Vec<_>>() {
            self.choose_in(&slip.1.clone(), vec![slip]);
        }
        for (Mutant { number, replacement, .. }, body) in
            block.stmts.first().map_or_else(Vec::new, |first: &Stmt| self.take_placed(Genre::FnValue, first))
        {
            let opaque = matches!(&signature.output, ReturnType::Type(_, it) if matches!(**it, Type::ImplTrait(_)));
            if opaque {
                // Both branches must have one type: a mutant with an empty iterator loses its item type.
                if replacement.contains("iter::empty") {
                    let after = format!(" }}; __all.filter(|_| !crate::mutant::is({number}))");
                    self.put(&body, "let __all = { ".to_owned(), &after, *number);
                }
            } else {
                let before = format!("if crate::mutant::is({number}) {{ return {replacement}; }} ");
                self.put(&body, before, "", *number);
            }
        }
        within(self);
        if self.constant.contains(&signature.ident.to_string()) {
            self.edits.truncate(before);
        } else if let (Some(token), true) = (&signature.constness, self.edits.len() > before) {
            let (rank, opens, closes) = ((true, 0, 0), None, None);
            self.edits.push(Edit { range: bytes(token), text: String::new(), rank, opens, closes });
        }
    }

    fn finish(mut self) -> Schema {
        self.edits.sort_by_key(|edit| (edit.range.start, edit.rank));
        let (mut text, mut places, mut done) = (String::new(), Vec::new(), 0);
        let mut open = BTreeMap::new();
        for Edit { range, text: new, opens, closes, .. } in self.edits {
            text.push_str(self.source.get(done..range.start).unwrap_or_default());
            let start = text.len();
            text.push_str(&new);
            open.extend(opens.map(|mutant| (mutant, start)));
            places.extend(opens.map(|mutant| (start..text.len(), mutant)));
            places.extend(closes.and_then(|mutant| Some((open.remove(&mutant)?..text.len(), mutant))));
            done = range.end;
        }
        text.push_str(self.source.get(done..).unwrap_or_default());
        Schema { text, places }
    }
}

/// Whether the expression binds names: `let` is only allowed in conditions and not beside `||`.
fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(both) => matches!(both.op, BinOp::And(_)) && (has_let(&both.left) || has_let(&both.right)),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Instrumenter<'_> {
    fn visit_item_fn(&mut self, node: &'ast syn::ItemFn) {
        self.function(&node.sig, &node.block, |weaver| visit::visit_item_fn(weaver, node));
    }

    fn visit_impl_item_fn(&mut self, node: &'ast syn::ImplItemFn) {
        self.function(&node.sig, &node.block, |weaver| visit::visit_impl_item_fn(weaver, node));
    }

    fn visit_trait_item_fn(&mut self, node: &'ast syn::TraitItemFn) {
        if let Some(block) = &node.default {
            self.function(&node.sig, block, |weaver| visit::visit_trait_item_fn(weaver, node));
        }
    }

    // Constants are evaluated at compile time, so no mutant can be selected in them.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}

    fn visit_expr_binary(&mut self, node: &'ast syn::ExprBinary) {
        let mutants = self.take_placed(Genre::BinaryOperator, &node.op);
        if !has_let(&node.left) && !has_let(&node.right) {
            self.choose(node, mutants);
        }
        visit::visit_expr_binary(self, node);
    }

    fn visit_expr_unary(&mut self, node: &'ast syn::ExprUnary) {
        let mutants = self.take_placed(Genre::UnaryOperator, &node.op);
        self.choose(node, mutants);
        visit::visit_expr_unary(self, node);
    }

    fn visit_expr_match(&mut self, node: &'ast syn::ExprMatch) {
        // Without a wildcard arm the compiler requires each arm.
        let deletable = node.arms.iter().any(|arm| matches!(arm.pat, Pat::Wild(_)) && arm.guard.is_none());
        for arm in &node.arms {
            self.arm(arm, deletable);
        }
        visit::visit_expr_match(self, node);
    }

    fn visit_expr_struct(&mut self, node: &'ast syn::ExprStruct) {
        for field in &node.fields {
            let mutants = self.take_placed(Genre::StructField, field);
            self.choose(node, mutants);
        }
        visit::visit_expr_struct(self, node);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The mutant of `genre` that puts `replacement` where `there` is first found in `source`.
    fn mutant(source: &str, genre: &str, there: &str, replacement: &str) -> Mutant {
        let start = source.find(there).unwrap();
        let at = |byte: usize| {
            let before = &source[..byte];
            json!({ "line": before.matches('\n').count() + 1, "column": byte - before.rfind('\n').map_or(0, |it| it + 1) + 1 })
        };
        let span = json!({ "start": at(start), "end": at(start + there.len()) });
        let (file, name, package) = ("a.rs", "a.rs:1:1: x", "a");
        let value = json!({ "genre": genre, "replacement": replacement, "span": span, "file": file, "name": name, "package": package });
        Mutant { number: 7, ..serde_json::from_value(value).unwrap() }
    }

    #[test]
    fn each_genre_is_selected_in_place() {
        let is = "crate::mutant::is(7)";
        for (source, (genre, there, replacement), expected) in [
            ("fn f() -> u8 { 1 }", ("FnValue", "1", "0"), format!("fn f() -> u8 {{ if {is} {{ return 0; }} 1 }}")),
            (
                "const fn f() -> u8 { 1 }",
                ("FnValue", "1", "0"),
                format!(" fn f() -> u8 {{ if {is} {{ return 0; }} 1 }}"),
            ),
            (
                "fn f() -> impl Iterator<Item = u8> { g() }",
                ("FnValue", "g()", "::std::iter::empty()"),
                format!("fn f() -> impl Iterator<Item = u8> {{ let __all = {{ g() }}; __all.filter(|_| !{is}) }}"),
            ),
            (
                "fn f() { let x = a && b || c; }",
                ("BinaryOperator", "||", "&&"),
                format!("fn f() {{ let x = (if {is} {{ a && b && c }} else {{ a && b || c }}); }}"),
            ),
            (
                "fn f() { if !a.b() {} }",
                ("UnaryOperator", "!", ""),
                format!("fn f() {{ if (if {is} {{ a.b() }} else {{ !a.b() }}) {{}} }}"),
            ),
            (
                "fn f() { match a { 1 => 2, _ => 3 } }",
                ("MatchArm", "1 => 2,", ""),
                format!("fn f() {{ match a {{ 1 if !{is} => 2, _ => 3 }} }}"),
            ),
            (
                "fn f() { match a { x if x > 1 => 2, _ => 3 } }",
                ("MatchArmGuard", "x > 1", "true"),
                format!("fn f() {{ match a {{ x if (if {is} {{ true }} else {{ x > 1 }}) => 2, _ => 3 }} }}"),
            ),
            (
                "fn f() -> T { T { a: 1, ..b } }",
                ("StructField", "a: 1,", ""),
                format!("fn f() -> T {{ (if {is} {{ T {{  ..b }} }} else {{ T {{ a: 1, ..b }} }}) }}"),
            ),
            // Code that runs at compile time remains unchanged.
            ("const A: u8 = 1 + 2;", ("BinaryOperator", "+", "-"), "const A: u8 = 1 + 2;".to_owned()),
            (
                "fn f() { if let A = a && b {} }",
                ("BinaryOperator", "&&", "||"),
                "fn f() { if let A = a && b {} }".to_owned(),
            ),
        ] {
            let schema = Schema::new(source, &[&mutant(source, genre, there, replacement)], &BTreeSet::new());
            let schema = schema.unwrap();
            assert_eq!(schema.text, expected);
            let place = expected.find(is);
            assert_eq!(place.and_then(|place| schema.at(place)), place.map(|_| 7), "{source}");
        }
    }

    #[test]
    fn a_slip_may_be_any_expression() {
        let source = "const fn f(a: u8) -> u8 { a.min(1) }";
        let slip = mutant(source, "Slip", "a.min(1)", "a.max(1)");
        let schema = Schema::new(source, &[&slip], &BTreeSet::new()).unwrap();
        let chosen = "(if crate::mutant::is(7) { a.max(1) } else { a.min(1) })";
        assert_eq!(schema.text, format!(" fn f(a: u8) -> u8 {{ {chosen} }}"));
    }

    #[test]
    fn nested_mutants_work() {
        let source = "fn f() -> bool { !(a == b) }";
        let mut inner = mutant(source, "BinaryOperator", "==", "!=");
        inner.number = 8;
        let outer = mutant(source, "UnaryOperator", "!", "");
        let schema = Schema::new(source, &[&inner, &outer], &BTreeSet::new()).unwrap();
        assert_eq!(
            schema.text,
            "fn f() -> bool { (if crate::mutant::is(7) { (a == b) } else { \
             !((if crate::mutant::is(8) { a != b } else { a == b })) }) }"
        );
        assert_eq!(schema.at(schema.text.find("a != b").unwrap()), Some(8));
        assert_eq!(schema.at(schema.text.find("{ (a == b").unwrap()), Some(7));
    }
}
