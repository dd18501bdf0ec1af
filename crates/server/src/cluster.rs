//! What joins the layers of a cluster: Raft below, the engine beside it. `node` tells the story.

mod acknowledged;
mod committer;
mod director;
mod directory;
mod founding;
pub mod functions;
pub mod gate;
mod gathering;
mod known_map;
mod machine;
mod node;
mod overview;
mod placements;
pub mod post;
pub mod proxy;
mod publish;
mod replicas;
mod settings;
mod sightings;

pub use director::ChangeError;
pub use founding::Entrance;
pub use machine::{RegionMachine, WRONG_EPOCH};
pub use node::ClusterNode;
pub use settings::ClusterSettings;
