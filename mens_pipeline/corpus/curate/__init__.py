"""From records to a train set: pairs, validation, split, mix."""
