//! Reads the layouts, and takes nothing else.

use std::collections::BTreeMap;

use cairn_encoding::reader::Reader;

use super::{Read, value};
use crate::change::Change;
use crate::found::{Foundation, Founder};
use crate::map::Settings;
use crate::node::{Addresses, Endpoint, Node, NodeState, Peer};
use crate::region::{Duty, Region, Replica, Split};
use crate::slots::SlotRange;

pub(super) fn read_change(reader: &mut Reader<'_>) -> Read<Change> {
    Ok(match reader.u8("tag")? {
        1 => Change::Found(read_foundation(reader)?),
        2 => Change::AddNode {
            addresses: read_addresses(reader)?,
            version: reader.u16("version")?,
            incarnation: reader.u64("incarnation")?,
        },
        3 => Change::UpdateNode {
            node: reader.u64("node")?,
            addresses: read_addresses(reader)?,
            version: reader.u16("version")?,
        },
        4 => Change::DrainNode {
            node: reader.u64("node")?,
        },
        5 => Change::KeepNode {
            node: reader.u64("node")?,
        },
        6 => Change::RemoveNode {
            node: reader.u64("node")?,
        },
        7 => Change::Configure(read_settings(reader)?),
        8 => Change::AddReplica {
            region: reader.u64("region")?,
            node: reader.u64("node")?,
            replaces: read_option(reader, read_replica_id)?,
        },
        9 => Change::Promote {
            region: reader.u64("region")?,
            replica: reader.u64("replica")?,
        },
        10 => Change::Abandon {
            region: reader.u64("region")?,
            replica: reader.u64("replica")?,
        },
        11 => Change::RemoveReplica {
            region: reader.u64("region")?,
            replica: reader.u64("replica")?,
        },
        12 => Change::Drop {
            region: reader.u64("region")?,
            replica: reader.u64("replica")?,
        },
        13 => Change::Prefer {
            region: reader.u64("region")?,
            replica: read_option(reader, read_replica_id)?,
        },
        14 => Change::BeginSplit {
            region: reader.u64("region")?,
            at: reader.u16("slot")?,
        },
        15 => Change::FinishSplit {
            region: reader.u64("region")?,
            epoch: reader.u64("epoch")?,
        },
        16 => Change::Lose {
            region: reader.u64("region")?,
            replica: reader.u64("replica")?,
        },
        tag => return Err(value(reader, "tag", tag)),
    })
}

fn read_foundation(reader: &mut Reader<'_>) -> Read<Foundation> {
    let cluster = reader.u64("cluster")?;
    let settings = read_settings(reader)?;
    let mut nodes = Vec::new();
    for _ in 0..reader.u32("nodes")? {
        nodes.push(Founder {
            addresses: read_addresses(reader)?,
            version: reader.u16("version")?,
            incarnation: reader.u64("incarnation")?,
        });
    }
    Ok(Foundation {
        cluster,
        settings,
        nodes,
        regions: reader.u16("regions")?,
    })
}

fn read_option<T>(
    reader: &mut Reader<'_>,
    read: impl FnOnce(&mut Reader<'_>) -> Read<T>,
) -> Read<Option<T>> {
    match read_flag(reader, "option")? {
        true => read(reader).map(Some),
        false => Ok(None),
    }
}

fn read_flag(reader: &mut Reader<'_>, field: &'static str) -> Read<bool> {
    match reader.u8(field)? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(value(reader, field, other)),
    }
}

fn read_replica_id(reader: &mut Reader<'_>) -> Read<u64> {
    Ok(reader.u64("replica")?)
}

fn read_host(reader: &mut Reader<'_>) -> Read<String> {
    let length = reader.u16("length")?;
    let bytes = reader.bytes("host", usize::from(length))?;
    match std::str::from_utf8(bytes) {
        Ok(host) => Ok(host.to_string()),
        Err(_) => Err(value(reader, "host", bytes.escape_ascii())),
    }
}

fn read_endpoint(reader: &mut Reader<'_>) -> Read<Endpoint> {
    Ok(Endpoint {
        host: read_host(reader)?,
        port: reader.u16("port")?,
        tls_port: reader.u16("tls port")?,
    })
}

fn read_addresses(reader: &mut Reader<'_>) -> Read<Addresses> {
    Ok(Addresses {
        clients: read_endpoint(reader)?,
        advertised: read_option(reader, read_endpoint)?,
        peers: Peer {
            host: read_host(reader)?,
            port: reader.u16("port")?,
        },
    })
}

pub(super) fn read_settings(reader: &mut Reader<'_>) -> Read<Settings> {
    Ok(Settings {
        replicas: reader.u8("replicas")?,
        balance: read_flag(reader, "balance")?,
    })
}

pub(super) fn read_node(reader: &mut Reader<'_>) -> Read<Node> {
    Ok(Node {
        id: reader.u64("node")?,
        addresses: read_addresses(reader)?,
        state: match reader.u8("state")? {
            0 => NodeState::Active,
            1 => NodeState::Draining,
            2 => NodeState::Removed,
            other => return Err(value(reader, "state", other)),
        },
        version: reader.u16("version")?,
        incarnation: reader.u64("incarnation")?,
    })
}

pub(super) fn read_region(reader: &mut Reader<'_>) -> Read<Region> {
    let id = reader.u64("region")?;
    let slots = read_option(reader, read_slots)?;
    let epoch = reader.u64("epoch")?;
    let mut replicas = BTreeMap::new();
    for _ in 0..reader.u32("replicas")? {
        let replica = reader.u64("replica")?;
        replicas.insert(replica, read_replica(reader)?);
    }
    Ok(Region {
        id,
        slots,
        epoch,
        replicas,
        preferred: read_option(reader, read_replica_id)?,
        split: read_option(reader, read_split)?,
    })
}

fn read_slots(reader: &mut Reader<'_>) -> Read<SlotRange> {
    let (first, last) = (reader.u16("first")?, reader.u16("last")?);
    SlotRange::new(first, last)
        .ok_or_else(|| value(reader, "slots", format_args!("{first}-{last}")))
}

fn read_replica(reader: &mut Reader<'_>) -> Read<Replica> {
    let node = reader.u64("node")?;
    let duty = reader.u8("duty")?;
    let replaces = read_option(reader, read_replica_id)?;
    let duty = match (duty, replaces) {
        (0, None) => Duty::Voter,
        (1, replaces) => Duty::Learner { replaces },
        (2, None) => Duty::Leaving,
        (other, _) => return Err(value(reader, "duty", other)),
    };
    Ok(Replica { node, duty })
}

fn read_split(reader: &mut Reader<'_>) -> Read<Split> {
    let at = reader.u16("at")?;
    let region = reader.u64("region")?;
    let mut replicas = BTreeMap::new();
    for _ in 0..reader.u32("replicas")? {
        let old = reader.u64("old replica")?;
        replicas.insert(old, reader.u64("new replica")?);
    }
    Ok(Split {
        at,
        region,
        replicas,
    })
}
