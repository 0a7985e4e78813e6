//! Deadlines: the split of one deadline over the resources that a packet passes (Pradhan, Gopalan and Chiueh,
//! "Design Issues in System Support for Programmable Routers", 2001, section 5).
