//! Which namespaces there are, found out beside calls that change the cache.
use super::{Shared, State};
use crate::cache::Namespace;
use crate::error::Error;
use crate::ids::NodeId;
use crate::memory::{OutOfMemory, TryGrow};

impl State {
    /// Adds the next few namespaces after the last one in a list, with their roots; false when
    /// there were no more.
    fn list_namespaces(
        &self,
        count: usize,
        listed: &mut Vec<(Namespace, NodeId)>,
    ) -> Result<bool, Error> {
        let index = &self.cache()?.index;
        let (mut left, mut room) = (count, Ok(()));
        let last = listed.last().map(|(name, _)| *name);
        index.visit_roots(last.as_ref(), &mut |name, root| {
            left -= 1;
            room = listed.try_push((*name, index.id(root)));
            left > 0 && room.is_ok()
        });
        let full = |OutOfMemory| Error::memory("the list of namespaces");
        room.map(|()| left == 0).map_err(full)
    }
}

impl Shared {
    /// The namespaces that the cache has pages of, or is asked to keep, with their roots. Those
    /// that come or go during the call may be in the list or not.
    pub fn namespaces(&self) -> Result<Vec<(Namespace, NodeId)>, Error> {
        let mut listed = Vec::new();
        while self.read().list_namespaces(self.slice, &mut listed)? {
            self.without_lock();
        }
        Ok(listed)
    }
}
