"""What is measured. Every measure has samples and cases, and yields one record per pair (`measure.Measure`)."""
