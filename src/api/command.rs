//! What a member is commanded, and its answer.

use super::{Post, Role};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub const ACK: Post<Done> = Post::at("/ack");
pub const RESIGN: Post<Done> = Post::at("/resign");
pub const PAUSE: Post<Done> = Post::at("/pause");
pub const RESUME: Post<Done> = Post::at("/resume");
pub const DRAIN: Post<Done> = Post::at("/drain");
pub const SHUTDOWN: Post<Done> = Post::at("/shutdown");

#[derive(Serialize, Deserialize, ToSchema)]
pub struct Done {
    pub done: String,
    pub role: Role,
    /// Where this member stands now, or null if it does not, or not yet.
    pub znode: Option<String>,
    pub predecessor: Option<String>,
}
