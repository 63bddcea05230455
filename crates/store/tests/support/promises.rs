//! What both databases promise alike.
