//! A graph of modules with the line of one import for each edge, and its cycles.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Modules by name, what each imports, and where.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    edges: BTreeMap<String, BTreeMap<String, String>>,
}

impl Graph {
    /// `from` imports `to` at `place`, a file with a line and its text. The first place is kept.
    pub fn add(&mut self, from: &str, to: &str, place: String) {
        if from != to {
            self.edges.entry(from.to_owned()).or_default().entry(to.to_owned()).or_insert(place);
        }
    }

    /// Removes an edge.
    pub fn remove(&mut self, from: &str, to: &str) {
        if let Some(edges) = self.edges.get_mut(from) {
            edges.remove(to);
        }
    }

    /// Whether `from` imports `to`.
    pub fn has(&self, from: &str, to: &str) -> bool {
        self.edges.get(from).is_some_and(|edges| edges.contains_key(to))
    }

    /// Whether there is a path from `from` to `to`.
    pub fn reaches(&self, from: &str, to: &str) -> bool {
        self.way(from, to).is_some()
    }

    /// The shortest path from `from` to `to`, both included.
    fn way(&self, from: &str, to: &str) -> Option<Vec<&str>> {
        let (start, _) = self.edges.get_key_value(from)?;
        let mut before: BTreeMap<&str, &str> = BTreeMap::new();
        let mut queue = VecDeque::from([start.as_str()]);
        while let Some(node) = queue.pop_front() {
            for next in self.edges.get(node).into_iter().flat_map(BTreeMap::keys) {
                if before.contains_key(next.as_str()) {
                    continue;
                }
                before.insert(next, node);
                if next == to {
                    return Some(unwind(&before, from, next));
                }
                queue.push_back(next);
            }
        }
        None
    }

    /// One cycle for each set of modules that all reach each other: the shortest through the first of them, one import
    /// per line.
    pub fn cycles(&self) -> Vec<String> {
        let mut told = BTreeSet::new();
        let mut cycles = Vec::new();
        for node in self.edges.keys() {
            if told.contains(node.as_str()) {
                continue;
            }
            let Some(way) = self.way(node, node) else { continue };
            let circle = self.edges.keys().filter(|other| self.reaches(node, other) && self.reaches(other, node));
            let circle: Vec<&str> = circle.map(String::as_str).collect();
            let steps =
                way.windows(2).map(|step| format!("  {} -> {}: {}", step[0], step[1], self.edges[step[0]][step[1]]));
            let steps: Vec<String> = steps.collect();
            let all = if circle.len() + 1 > way.len() {
                format!("\n  all in it: {}", circle.join(", "))
            } else {
                String::new()
            };
            cycles.push(steps.join("\n") + &all);
            told.extend(circle);
        }
        cycles
    }
}

/// The path found by a search, from its start to `last`. A path to the start itself is a full cycle.
fn unwind<'a>(before: &BTreeMap<&'a str, &'a str>, from: &str, last: &'a str) -> Vec<&'a str> {
    let mut way = vec![last];
    let mut node = last;
    loop {
        node = before[node];
        way.push(node);
        if node == from {
            way.reverse();
            return way;
        }
    }
}
