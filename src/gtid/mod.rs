//! GTID sets and positions of MySQL and MariaDB: text form, binary form, algebra.
