use super::*;
use crate::map::ClusterMap;
use crate::simulation::{founded, obedient};

/// Region 1 of four nodes, with voters on nodes 1, 2 and 3.
struct Story {
    map: ClusterMap,
    observed: Observed,
}

impl Story {
    fn new() -> Story {
        let map = founded(4, 1, 3);
        let observed = obedient(&map);
        Story { map, observed }
    }

    fn region(&self) -> &Region {
        self.map.region(1).unwrap()
    }

    fn on(&self, node: u64) -> u64 {
        self.region().replica_on(node).unwrap()
    }

    fn group(&mut self) -> &mut Group {
        self.observed.groups.get_mut(&1).unwrap()
    }

    #[track_caller]
    fn apply(&mut self, change: Change) {
        self.map.apply(&change).unwrap();
    }

    #[track_caller]
    fn expect(&self, expected: Progress) {
        let progress = drive(self.region(), &self.observed, &BTreeMap::new());
        assert_eq!(progress, expected);
    }

    #[track_caller]
    fn expect_step(&self, step: Step) {
        self.expect(Progress::Next(step));
    }
}

/// The leader's own replica moves from node 1 to node 4.
#[test]
fn a_replica_moves_step_by_step() {
    let mut story = Story::new();
    let (region, old) = (1, story.on(1));
    story.expect(Progress::Settled);
    story.apply(Change::AddReplica {
        region,
        node: 4,
        replaces: Some(old),
    });
    let replica = story.on(4);
    story.expect_step(Step::AddLearner {
        region,
        replica,
        node: 4,
    });
    story.group().learners.insert(replica);
    story.expect(Progress::Waiting(Waiting::CatchUp { replica, lag: None }));
    story.group().lag.insert(replica, 300);
    story.expect(Progress::Waiting(Waiting::CatchUp {
        replica,
        lag: Some(300),
    }));
    story.group().lag.insert(replica, 3);
    let promote = Change::Promote { region, replica };
    story.expect_step(Step::Propose(promote.clone()));
    story.apply(promote);

    let to = story.on(2);
    story.expect_step(Step::Transfer { region, to });
    story.group().leader = to;
    story.group().settled = false;
    story.expect(Progress::Waiting(Waiting::Membership));
    story.group().settled = true;
    let voters = BTreeSet::from([story.on(2), story.on(3), replica]);
    let change = Step::ChangeVoters {
        region,
        voters: voters.clone(),
    };
    story.expect_step(change.clone());
    // The leader crashed between the two halves of the change.
    let before = story.group().configs[0].clone();
    story.group().configs = vec![before, voters.clone()];
    story.group().learners.clear();
    story.expect_step(change);
    story.group().configs = vec![voters];
    let replica = old;
    let forget = Change::Drop { region, replica };
    story.expect_step(Step::Propose(forget.clone()));
    story.apply(forget);
    story.expect(Progress::Settled);
}

/// With one voter there is nobody to hand over to, until the new one votes too.
#[test]
fn the_only_replica_moves() {
    let map = founded(2, 1, 1);
    let observed = obedient(&map);
    let mut story = Story { map, observed };
    let (region, old) = (1, story.on(1));
    story.apply(Change::AddReplica {
        region,
        node: 2,
        replaces: Some(old),
    });
    let new = story.on(2);
    story.group().learners.insert(new);
    story.group().lag.insert(new, 0);
    story.apply(Change::Promote {
        region,
        replica: new,
    });
    let both = BTreeSet::from([old, new]);
    story.expect_step(Step::ChangeVoters {
        region,
        voters: both.clone(),
    });
    story.group().configs = vec![both];
    story.group().learners.clear();
    story.expect_step(Step::Transfer { region, to: new });
    story.group().leader = new;
    story.expect_step(Step::ChangeVoters {
        region,
        voters: BTreeSet::from([new]),
    });
}

#[test]
fn what_cannot_be_done_is_waited_for() {
    let mut story = Story::new();
    let (region, old) = (1, story.on(1));
    story.apply(Change::AddReplica {
        region,
        node: 4,
        replaces: Some(old),
    });
    let new = story.on(4);
    story.observed.alive.remove(&4);
    story.expect(Progress::Waiting(Waiting::Node(4)));
    story.observed.alive.insert(4);
    story.group().learners.insert(new);
    story.apply(Change::Promote {
        region,
        replica: new,
    });
    // Nobody who stays could lead.
    story.group().lag.clear();
    story.expect(Progress::Waiting(Waiting::Successor));
    story.observed.alive = BTreeSet::from([1, 4]);
    story.expect(Progress::Waiting(Waiting::Majority));
    story.observed.groups.clear();
    story.expect(Progress::Waiting(Waiting::Leader));
}

#[test]
fn a_learner_that_was_given_up_goes() {
    let mut story = Story::new();
    let region = 1;
    story.apply(Change::AddReplica {
        region,
        node: 4,
        replaces: None,
    });
    let replica = story.on(4);
    story.group().learners.insert(replica);
    story.apply(Change::Abandon { region, replica });
    story.expect_step(Step::RemoveLearner { region, replica });
    story.group().learners.clear();
    story.expect_step(Step::Propose(Change::Drop { region, replica }));
}

#[test]
fn a_region_is_split_by_its_own_log() {
    let mut story = Story::new();
    let region = 1;
    story.apply(Change::BeginSplit { region, at: 8192 });
    let split = story.region().split.clone().unwrap();
    story.expect_step(Step::Split { region, split });
    story.group().epoch = 2;
    let finish = Change::FinishSplit { region, epoch: 2 };
    story.expect_step(Step::Propose(finish.clone()));
    story.apply(finish);
    story.expect(Progress::Settled);
}
