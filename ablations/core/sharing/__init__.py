"""One store in several places: the requests to a store elsewhere, and how two stores are united."""
