"""The parts of the SQL store, by their subject.

Each method is one transaction around functions of the module that has the SQL. A method that changes something for an
operator writes its audit entries in the same transaction, with `audit.write`.
"""
