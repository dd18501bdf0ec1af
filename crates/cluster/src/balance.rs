//! Evening out: which replica should move to another node, and which region should be led by another.
//!
//! Both are found one by one. Each leaves the numbers nearer to each other, so this comes to an end, and the end is
//! that no two nodes differ by more than one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::drive::successor;
use crate::map::ClusterMap;
use crate::observed::Observed;
use crate::region::{Duty, Region};

/// How many replicas of slots each active node will have when all that is under way is done.
pub(crate) fn replica_counts(map: &ClusterMap) -> BTreeMap<u64, usize> {
    let mut counts: BTreeMap<u64, usize> = map.active_nodes().map(|node| (node.id, 0)).collect();
    for region in map.regions().filter(|region| region.slots.is_some()) {
        let replaced = region.replaced();
        for (id, replica) in &region.replicas {
            if replica.duty != Duty::Leaving
                && !replaced.contains(id)
                && let Some(count) = counts.get_mut(&replica.node)
            {
                *count += 1;
            }
        }
    }
    counts
}

/// How many regions of slots each active node leads.
pub(crate) fn leader_counts(map: &ClusterMap, observed: &Observed) -> BTreeMap<u64, usize> {
    let mut counts: BTreeMap<u64, usize> = map.active_nodes().map(|node| (node.id, 0)).collect();
    for region in map.regions().filter(|region| region.slots.is_some()) {
        let leader = observed.leader(region);
        if let Some(count) = leader.and_then(|node| counts.get_mut(&node)) {
            *count += 1;
        }
    }
    counts
}

/// A replica of one of these regions that should move, and where to.
pub(crate) struct Relocation {
    pub region: u64,
    pub replica: u64,
    pub to: u64,
}

pub(crate) fn relocation(
    regions: &[&Region],
    counts: &BTreeMap<u64, usize>,
    observed: &Observed,
) -> Option<Relocation> {
    let alive = || {
        let counts = counts.iter();
        counts.filter(|(node, _)| observed.alive.contains(node))
    };
    let mut pairs: Vec<(usize, u64, u64)> = Vec::new();
    for (from, many) in alive() {
        let has_room = |to: &u64| !observed.short_of_disk.contains(to);
        for (to, few) in alive().filter(|(to, few)| has_room(to) && **few + 2 <= *many) {
            pairs.push((many - few, *from, *to));
        }
    }
    pairs.sort_by_key(|(difference, from, to)| (std::cmp::Reverse(*difference), *from, *to));
    for (_, from, to) in pairs {
        let candidates = regions
            .iter()
            .filter(|region| region.replica_on(from).is_some() && region.replica_on(to).is_none());
        // One that leads has to hand over first.
        let chosen = candidates.min_by_key(|region| observed.leader(region) == Some(from));
        if let Some(region) = chosen
            && let Some(replica) = region.replica_on(from)
        {
            return Some(Relocation {
                region: region.id,
                replica,
                to,
            });
        }
    }
    None
}

/// A region that another replica should lead.
pub(crate) struct Handover {
    pub region: u64,
    pub to: u64,
}

/// Looks for the shortest chain of handovers from a node that leads at least two regions more to one that leads fewer, and
/// returns the last of it: the one to which a node gives that is about to take. The next time, the chain is shorter by one.
pub(crate) fn handover(
    regions: &[&Region],
    counts: &BTreeMap<u64, usize>,
    observed: &Observed,
) -> Option<Handover> {
    let mut best: Option<(usize, Handover)> = None;
    for (start, many) in counts {
        let few_enough = |node: &u64| counts.get(node).is_some_and(|few| few + 2 <= *many);
        if let Some((length, handover)) = chain(*start, regions, counts, observed, few_enough)
            && best.as_ref().is_none_or(|(shortest, _)| length < *shortest)
        {
            best = Some((length, handover));
        }
    }
    best.map(|(_, handover)| handover)
}

fn chain(
    start: u64,
    regions: &[&Region],
    counts: &BTreeMap<u64, usize>,
    observed: &Observed,
    is_end: impl Fn(&u64) -> bool,
) -> Option<(usize, Handover)> {
    let mut seen = BTreeSet::from([start]);
    let mut queue = VecDeque::from([(start, 0)]);
    while let Some((node, length)) = queue.pop_front() {
        for region in regions {
            if observed.leader(region) != Some(node) {
                continue;
            }
            for (to, next) in heirs(region, counts, observed) {
                if !seen.insert(next) {
                    continue;
                }
                if is_end(&next) {
                    let region = region.id;
                    return Some((length + 1, Handover { region, to }));
                }
                queue.push_back((next, length + 1));
            }
        }
    }
    None
}

/// Voters that could lead a region instead, and their nodes.
fn heirs(region: &Region, counts: &BTreeMap<u64, usize>, observed: &Observed) -> Vec<(u64, u64)> {
    let Some(group) = observed.groups.get(&region.id) else {
        return Vec::new();
    };
    let replicas = region.replicas.iter();
    replicas
        .filter(|(_, replica)| counts.contains_key(&replica.node))
        .filter_map(|(id, replica)| {
            let only = BTreeSet::from([*id]);
            let heir = successor(region, group, observed, &BTreeMap::new(), &only)?;
            Some((heir, replica.node))
        })
        .collect()
}
