"""One store in several places: what a store elsewhere is asked, and how two stores are united."""
