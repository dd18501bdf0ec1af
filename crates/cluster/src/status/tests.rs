use super::*;
use crate::Change;
use crate::plan::{Limits, plan};
use crate::simulation::{founded, obedient};

#[test]
fn a_table_for_people() {
    let mut map = founded(4, 2, 3);
    let mut observed = obedient(&map);
    let replica = map.region(1).unwrap().replica_on(1);
    let change = Change::AddReplica {
        region: 1,
        node: 4,
        replaces: replica,
    };
    map.apply(&change).unwrap();
    let group = observed.groups.get_mut(&1).unwrap();
    group.learners.insert(10);
    group.lag.insert(10, 5000);
    observed.alive.remove(&2);
    let plan = plan(&map, &observed, Limits::default());
    let status = Status {
        map: &map,
        observed: &observed,
        plan: &plan,
    };
    let expected = "\
cluster 0000000000000007, epoch 5, 3 replicas wanted, balancing on

node  state   alive  clients        nodes           replicas  leads
1     active  yes    10.0.0.1:6379  10.0.0.1:16379  3         1
2     active  no     10.0.0.2:6379  10.0.0.2:16379  3         0
3     active  yes    10.0.0.3:6379  10.0.0.3:16379  2         0
4     active  yes    10.0.0.4:6379  10.0.0.4:16379  2         1

region  slots       epoch  leader  replicas on nodes
0       the map     1      1       1 2 3
1       0-8191      1      1       1 2 3 4 (learns, 5000 behind)
2       8192-16383  1      4       4 1 2

node 2 does not answer
region 1 waits: for replica 10 to catch up, which is 5000 entries behind
";
    assert_eq!(status.to_string(), expected);
    let json = status.to_json();
    let beginning =
        r#"{"cluster":"0000000000000007","epoch":5,"replicas":3,"balance":true,"nodes":[{"id":1,"#;
    assert!(json.starts_with(beginning), "{json}");
    assert!(
        json.contains(r#"{"id":10,"node":4,"duty":"learner","lag":5000,"runs":true}"#),
        "{json}"
    );
}

#[test]
fn a_region_without_a_leader_is_not_well() {
    let map = founded(3, 2, 3);
    let mut observed = obedient(&map);
    let told = |observed: &Observed| {
        let plan = plan(&map, observed, Limits::default());
        let status = Status {
            map: &map,
            observed,
            plan: &plan,
        };
        status.to_string()
    };
    assert!(!told(&observed).contains("no leader"));
    observed.groups.clear();
    let told = told(&observed);
    assert!(told.contains("region 2 has no leader"), "{told}");
    assert!(!told.contains("nothing is to be done"), "{told}");
}

#[test]
fn a_region_that_counts_on_who_is_not_there_is_not_well() {
    let map = founded(3, 1, 3);
    let obedient = obedient(&map);
    let told = |observed: &Observed| {
        let plan = plan(&map, observed, Limits::default());
        let status = Status {
            map: &map,
            observed,
            plan: &plan,
        };
        let told = status.to_string();
        (told, status.to_json())
    };
    let (well, json) = told(&obedient);
    assert!(well.ends_with("\nnothing is to be done\n"), "{well}");
    assert!(well.contains("  1 2 3\n"), "{well}");
    assert!(!json.contains(r#""runs":false"#), "{json}");
    assert!(!json.contains(r#""short_of_disk":true"#), "{json}");
    let third = map.region(1).unwrap().replica_on(3).unwrap();
    let with = |change: &dyn Fn(&mut Observed)| {
        let mut observed = obedient.clone();
        change(&mut observed);
        told(&observed)
    };
    let group = |observed: &mut Observed, lag: Option<u64>| {
        let group = observed.groups.get_mut(&1).unwrap();
        match lag {
            Some(lag) => group.lag.insert(third, lag),
            None => group.lag.remove(&third),
        };
    };
    // While it is written to, all are behind by a little.
    let (little, _) = with(&|observed| group(observed, Some(9)));
    assert_eq!(little, well);
    let (behind, _) = with(&|observed| group(observed, Some(1000)));
    assert!(behind.contains("  1 2 3 (1000 behind)\n"), "{behind}");
    let (silent, _) = with(&|observed| group(observed, None));
    assert!(
        silent.contains(" 3 (has not answered the leader)\n"),
        "{silent}"
    );
    let (failed, json) = with(&|observed| {
        observed.failed.insert((1, 3));
    });
    assert!(failed.contains("  1 2 3 (does not run)\n"), "{failed}");
    assert!(
        json.contains(r#""node":3,"duty":"voter","lag":0,"runs":false"#),
        "{json}"
    );
    for told in [behind, silent, failed] {
        assert!(!told.contains("nothing is to be done"), "{told}");
        assert!(told.ends_with("some replicas have to catch up\n"), "{told}");
    }
    let (short, json) = with(&|observed| {
        observed.short_of_disk.insert(2);
    });
    assert!(
        short.contains("node 2 is short of room on its disk"),
        "{short}"
    );
    assert!(!short.contains("nothing is to be done"), "{short}");
    assert!(
        json.contains(r#""alive":true,"short_of_disk":true"#),
        "{json}"
    );
    // Who does not lead knows nothing of the others.
    let (follower, _) = with(&|observed| observed.groups.get_mut(&1).unwrap().lag.clear());
    assert_eq!(follower, well);
}
